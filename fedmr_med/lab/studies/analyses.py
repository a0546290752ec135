"""The studies that measure something else than accuracy on federated runs."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS, TRAIN_COUNTS
from fedmr_med.data.loading import Batches
from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.results import RunResult
from fedmr_med.jobs.catalog import job_for
from fedmr_med.lab.bench.runs import Run
from fedmr_med.lab.comparison.engine import RUNS
from fedmr_med.lab.datasets.benchmark import load_benchmark
from fedmr_med.lab.studies.base import Cells, Outcome, Setting, StudyTable
from fedmr_med.lab.studies.tables import VARIANTS, curves, entry_key, local_seconds, place, planned, run_table
from fedmr_med.models.model_file import load_model
from fedmr_med.report.class_counts import counts_map
from fedmr_med.report.elements import Section
from fedmr_med.report.pages.comparison import seeds_chart
from fedmr_med.seeding import numpy_generator
from fedmr_med.server.chain import CHECKPOINT
from fedmr_med.server.state import initial_state

BATCH, TOP = 128, 50


def communication(setting: Setting) -> Outcome:
    """Count the numbers on the wire of the paper's networks, and the rounds to FedAvg's best accuracy."""
    wire: list[Cells] = []
    for dataset, (without, with_prototypes) in setting.paper.wire.items():
        state = initial_state(job_for(dataset, "fedmr"))
        model = sum(array.size for array in state.model.values()) / 1e6
        prototypes = state.prototypes.means.numel() / 1e6
        wire.append(
            {
                "dataset": dataset,
                "model, paper": without,
                "model, measured": round(model, 3),
                "with prototypes, paper": with_prototypes,
                "with prototypes, measured": round(model + prototypes, 3),
                "extra, %": round(100 * prototypes / model, 3),
            }
        )
    entries = run_table(setting)
    rounds: list[Cells] = []
    for row in setting.rows():
        for label in VARIANTS[setting.study]:
            base, runs = (entries[entry_key(row, row.split, name)] for name in ("fedavg", label))
            reached = [rounds_to(a.best_accuracy or 0.0, b) for a, b in zip(base, runs, strict=True)]
            measured = ", ".join(str(number or "not reached") for number in reached)
            paper = {"method": label, "rounds, paper": row.values[label], "of": 400}
            rounds.append(place(setting, row) | paper | {"rounds, measured": measured, "of ": len(base[0].rounds)})
    tables = [
        StudyTable("Table param: millions of numbers sent in one direction", wire),
        StudyTable("Table commu: rounds to the best accuracy of FedAvg", rounds),
    ]
    notes = ["Table param is about the paper's own networks, whatever the budget."]
    return Outcome(tables, curves(entries), notes)


def rounds_to(accuracy: float, entry: RunResult) -> int | None:
    """Return the first round of a run that reaches an accuracy; None if none does."""
    reached = (r.round for r in entry.rounds if r.accuracy is not None and r.accuracy >= accuracy)
    return next(reached, None)


def burden(setting: Setting) -> Outcome:
    """Measure what a client stores and how long its part of a round takes, against FedAvg."""
    entries, planned_runs = run_table(setting), planned(setting)
    rows: list[Cells] = []
    for row in setting.rows():
        base = local_seconds(entries[entry_key(row, row.split, "fedavg")])
        for label, variant in VARIANTS[setting.study].items():
            key = entry_key(row, row.split, label)
            runs, state = entries[key], initial_state(planned_runs[key][0].job)
            model = sum(array.nbytes for array in state.model.values())
            prototypes = state.prototypes.means.nbytes if variant.method in ("fedmr", "fedproc") else 0
            stored = (model + prototypes + max(entry.kept_bytes or 0 for entry in runs)) / model
            rows.append(
                {
                    **place(setting, row),
                    "method": label,
                    "stored, paper": setting.paper.stored.get(variant.method, "not given"),
                    "stored, measured": f"{stored:.2f} x the model",
                    "time, paper": row.values.get(label, "not given"),
                    "time, measured": round(local_seconds(runs) / base, 3),
                }
            )
    notes = [
        "Stored: the model, the prototypes received, and what the method keeps from round to round.",
        "Time: a client's part of a round, against FedAvg's in the same study; runs side by side disturb each other.",
    ]
    return Outcome([StudyTable(setting.paper.title, rows)], curves(entries), notes)


def eigenvalues(setting: Setting) -> Outcome:
    """Measure how evenly the final models' features spread over their dimensions."""
    entries, planned_runs = run_table(setting), planned(setting)
    rows: list[Cells] = []
    for row in setting.rows():
        for label in VARIANTS[setting.study]:
            runs = planned_runs[entry_key(row, row.split, label)]
            values = [eigenvalue_variance(_test_features(run, setting.out)) for run in runs]
            measured = round(fmean(values), 2)
            rows.append({**place(setting, row), "variant": label, "paper": row.values[label], "measured": measured})
    notes = [
        f"Features of {BATCH} test images, standardised over the batch; the {TOP} largest eigenvalues of their "
        "covariance, or all of them where the features have fewer dimensions."
    ]
    return Outcome([StudyTable(setting.paper.title, rows)], curves(entries), notes)


def eigenvalue_variance(features: Tensor) -> float:
    """Return 1/B sum_i (lambda_i - mean)^2 over the largest eigenvalues of the covariance of (B, d) features."""
    features = features.double()
    standardised = (features - features.mean(0)) / (features.var(0, correction=0) + 1e-8).sqrt()
    covariance = standardised.T @ standardised / (len(features) - 1)
    largest = torch.linalg.eigvalsh(covariance).flip(0)[:TOP]
    return float((largest - largest.mean()).square().sum() / len(features))


@torch.no_grad()
def _test_features(run: Run, out: Path) -> Tensor:
    """Return the final model's features of a batch of test images, the same ones for every run of a seed."""
    if (test := run.test()) is None:
        raise ConfigError(f"{run.job.task.dataset} has no test set at the server.", code="data.missing")
    network = load_model(out / RUNS / run.name / CHECKPOINT, allow_code=True).network()
    drawn = numpy_generator(run.job.seed, "eigenvalues").permutation(len(test))[:BATCH]
    (images, _), *_ = Batches.of(test.subset(drawn), run.job.task, batch_size=BATCH).epoch(shuffle=False)
    features: Tensor = network(images)[0]
    return features


def intra_curve(setting: Setting) -> Outcome:
    """Follow the intra-class loss over the rounds of a FedMR run."""
    dataset, split = "cifar10", "P5C2"
    runs = [setting.run("fedmr", dataset, "fedmr", split=split, seed=seed) for seed in setting.seeds]
    results = setting.results(runs)
    weight = runs[0].job.method.options["mu1"]
    losses = [[record.terms.get("intra", math.nan) / weight for record in result.rounds] for result in results]
    rows: list[Cells] = [
        {
            "dataset": dataset,
            "split": split,
            "seed": run.job.seed,
            "paper": "a curve: falls fast, stays low",
            "first round": f"{loss[0]:.4g}",
            "lowest": f"{min(loss):.4g}",
            "last round": f"{loss[-1]:.4g}",
        }
        for run, loss in zip(runs, losses, strict=True)
    ]
    title = "Intra-class loss by round, mean over clients and steps"
    chart = seeds_chart(title, {"fedmr": losses}, ylabel="intra-class loss")
    return Outcome([StudyTable(setting.paper.title, rows)], [Section("curve", title, chart)] if chart else [])


def heatmap(setting: Setting) -> Outcome:
    """Draw and describe the images per client and class of ISIC2019 and of CIFAR10 by Dirichlet."""
    tables: dict[str, tuple[Sequence[str], Sequence[str], np.ndarray]] = {
        "ISIC2019": (HOSPITALS, CLASS_NAMES, np.array(TRAIN_COUNTS))
    }
    for split in ("dir1", "dir0.5", "dir0.1"):
        run = setting.run("fedavg", "cifar10", "fedavg", split=split, seed=setting.seeds[0])
        task, sites = run.job.task, run.sites
        counts = [
            np.bincount(load_benchmark(site.data, task, seed=run.job.seed).train.labels, minlength=task.num_classes)
            for site in sites.values()
            if site.data.source == "benchmark"
        ]
        tables[f"CIFAR10 {split}"] = (tuple(sites), task.class_names, np.stack(counts))
    rows: list[Cells] = []
    pictures: list[Section] = []
    for title, (clients, classes, table) in tables.items():
        pictures.append(Section(f"counts{len(pictures)}", title, counts_map(title, clients, classes, table)))
        sizes = table.sum(1)
        rows.append(
            {
                "data": title,
                "paper": "a picture",
                "clients": len(clients),
                "classes": len(classes),
                "empty cells, %": round(100 * float((table == 0).mean()), 1),
                "smallest client": int(sizes.min()),
                "largest client": int(sizes.max()),
                "classes of the poorest client": int((table > 0).sum(1).min()),
            }
        )
    notes = ["The counts of ISIC2019 are those of FLamby's training fold."]
    return Outcome([StudyTable(setting.paper.title, rows)], pictures, notes)
