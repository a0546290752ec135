"""All measurements in one run, and the object that ``fedmr-med perf --json`` prints."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.lab.perf.aggregation import aggregation_figures, memory_figures
from fedmr_med.lab.perf.federation import import_figures, runner_figure, secure_figure, wire_figures
from fedmr_med.lab.perf.loading import data_wait, loader_speedups
from fedmr_med.lab.perf.measure import Figure, round_to
from fedmr_med.lab.perf.parallel import parallel_figures
from fedmr_med.lab.perf.simulator import simulator_figures
from fedmr_med.lab.perf.workload import (
    Case,
    memory_ratios,
    private_step_ratio,
    prototype_pass_ratio,
    round_ratios,
    step_ratios,
)
from fedmr_med.process import kept_memory, set_threads
from fedmr_med.server.state import initial_state

BOTH = ("fedavg", "fedmr")
_FEDMR_HEAD = {"head": "fedmr"}

EFFICIENTNET = Case("efficientnet_b0", 64, options=_FEDMR_HEAD)
RESNET = Case("resnet18", 32, classes=10)
SMALL_CNN = Case("small_cnn", 32, classes=10)


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often.

    Attributes:
        steps: cases of the training step of all methods, with the number of repetitions; the first case of a
            network is its entry in ``step_ratio``.
        pairs: further cases of FedAvg, FedMR and FedMR by loops alone: how the ratio grows with the sizes.
        memory: cases of the peak memory of all methods.
        rounds: cases of a whole round of ten local epochs: of all methods on the first case, then of two.
        prototype_pass, private: their case, with the number of repetitions.
        loader: images, their size, the batch and the repetitions of the data path.
        wait: case of the training loop behind one worker, with the number of images.
        aggregation: pairs of (name of the network's job, contributions), repetitions; the last is the entry.
        runner: clients and rounds.
        imports: repetitions.
        parallel: clients, their updates, rounds and repetitions of clients side by side.
        simulator: rounds and repetitions of FLARE's simulator, and rounds with secure sums; None leaves both out.
    """

    steps: tuple[tuple[Case, int], ...]
    pairs: tuple[tuple[Case, int], ...]
    memory: tuple[Case, ...]
    rounds: tuple[tuple[Case, int], ...]
    prototype_pass: tuple[Case, int]
    private: tuple[Case, int]
    loader: dict[str, int]
    wait: tuple[Case, int] | None
    aggregation: tuple[tuple[str, int, int], ...]
    runner: tuple[int, int]
    imports: int
    parallel: dict[str, int]
    simulator: dict[str, int] | None


QUICK = Plan(
    steps=((SMALL_CNN, 25), (replace(EFFICIENTNET, image_size=32), 3)),
    pairs=((RESNET, 1),),
    memory=(SMALL_CNN,),
    rounds=((replace(SMALL_CNN, batches=2), 3),),
    prototype_pass=(replace(SMALL_CNN, batches=4), 5),
    private=(SMALL_CNN, 5),
    loader={"images": 16, "image_size": 200, "batch_size": 16, "repetitions": 3},
    wait=None,
    aggregation=(("efficientnet_b0", 20, 3),),
    runner=(5, 2),
    imports=1,
    parallel={"clients": 4, "updates": 25, "rounds": 1, "repetitions": 1},
    simulator=None,
)

FULL = Plan(
    steps=((EFFICIENTNET, 11), (RESNET, 7), (SMALL_CNN, 41)),
    pairs=(
        (replace(EFFICIENTNET, image_size=200), 3),
        (replace(EFFICIENTNET, batch_size=128), 5),
        (replace(RESNET, batch_size=128), 5),
        (replace(SMALL_CNN, batch_size=128), 41),
        (replace(SMALL_CNN, batch_size=256), 41),
        (replace(SMALL_CNN, options={"feature_size": 512}), 41),
        (replace(SMALL_CNN, classes=100), 41),
    ),
    memory=(EFFICIENTNET, RESNET, SMALL_CNN),
    rounds=((replace(SMALL_CNN, batches=8), 9), (replace(EFFICIENTNET, batches=4), 3), (replace(RESNET, batches=2), 3)),
    prototype_pass=(replace(EFFICIENTNET, batches=2), 5),
    private=(SMALL_CNN, 21),
    loader={"images": 64, "image_size": 200, "batch_size": 32, "repetitions": 7},
    wait=(replace(EFFICIENTNET, batch_size=32), 256),
    aggregation=(("wide_resnet28_10", 6, 5), *(("efficientnet_b0", n, 5) for n in (6, 50, 100))),
    runner=(20, 5),
    imports=5,
    parallel={"clients": 10, "updates": 100, "rounds": 3, "repetitions": 3},
    simulator={"rounds": 2, "repetitions": 1},
)


def measure(
    plan: Plan,
    on_start: Callable[[int, int, str], None] = lambda done, stages, text: None,
    *,
    flamby: Path | None = None,
) -> list[Figure]:
    """Run all measurements in one thread; with a checkout of FLamby its loader too.

    ``on_start`` is called before each with how many are done, how many there are, and what is next.
    """
    set_threads(1)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, kept_memory():
        planned = stages(plan, Path(folder), flamby)
        for done, (text, run) in enumerate(planned):
            on_start(done, len(planned), text)
            figures += run()
    return figures


def stages(plan: Plan, folder: Path, flamby: Path | None = None) -> list[tuple[str, Callable[[], list[Figure]]]]:
    """Return the measurements of a plan, each with what it is called."""
    every = methods.PAPER_METHODS

    def fresh(name: str) -> Path:
        (folder / name).mkdir()
        return folder / name

    found: list[tuple[str, Callable[[], list[Figure]]]] = [
        *((f"steps: {case}", partial(step_ratios, case, every, times)) for case, times in plan.steps),
        *((f"steps: {case}", partial(step_ratios, case, BOTH, times)) for case, times in plan.pairs),
        *((f"memory: {case}", partial(memory_ratios, case, every)) for case in plan.memory),
    ]
    for number, (case, times) in enumerate(plan.rounds):
        names = BOTH if number else every
        found.append((f"rounds: {case}", partial(round_ratios, case, names, times)))
    found.append(("prototype pass", partial(prototype_pass_ratio, *plan.prototype_pass)))
    found.append(("private step", partial(private_step_ratio, *plan.private)))
    found.append(("data path", partial(loader_speedups, fresh("images"), **plan.loader, flamby=flamby)))
    if plan.wait is not None:
        found.append(("waiting for data", partial(data_wait, fresh("wait"), *plan.wait)))
    for model, contributions, times in plan.aggregation:
        job = _job(model)
        found.append((f"aggregation: {contributions} x {model}", partial(_aggregation, job, contributions, times)))
    if sys.platform == "linux":  # of the last of these
        found.append(("memory of the aggregation", partial(memory_figures, job, contributions)))
    clients, rounds = plan.runner
    found.append(("runner", partial(runner_figure, fresh("runner"), clients=clients, rounds=rounds)))
    found.append(("wire", partial(wire_figures, _job("efficientnet_b0"))))
    found.append(("imports", partial(import_figures, plan.imports)))
    found.append(("clients side by side", partial(parallel_figures, fresh("parallel"), **plan.parallel)))
    if plan.simulator is not None:
        job, rounds = isic_job("fedmr").for_demo(), plan.simulator["rounds"]
        found.append(("FLARE's simulator", partial(simulator_figures, fresh("simulator"), job, **plan.simulator)))
        found.append(("secure sums", partial(secure_figure, fresh("secure"), job, rounds=rounds)))
    return found


def _aggregation(job: JobConfig, contributions: int, repetitions: int) -> list[Figure]:
    return aggregation_figures(job, initial_state(job), contributions, repetitions)


def _job(model: str) -> JobConfig:
    """Return the ISIC job with a network."""
    options = _FEDMR_HEAD if model == "efficientnet_b0" else {}
    return isic_job("fedmr").override({"model": {"name": model, "options": options}})


def as_object(figures: list[Figure]) -> dict[str, Any]:
    """Return the figures by field; ``figures`` holds all of them with sizes, meaning and spread.

    A field that was measured at several sizes has the first of each network for the methods, and the last, the
    largest, for the aggregation.
    """

    def one(name: str) -> float | None:
        values = [figure.value for figure in figures if figure.name == name]
        return round_to(values[-1]) if values else None

    def by_subject(name: str) -> dict[str, float]:
        return {figure.subject: round_to(figure.value) for figure in figures if figure.name == name}

    def whole(name: str) -> dict[str, int]:
        return {figure.subject: int(figure.value) for figure in figures if figure.name == name}

    def by_model(name: str) -> dict[str, dict[str, float]]:
        ratios: dict[str, dict[str, float]] = {}
        for figure in figures:
            if figure.name == name:
                ratios.setdefault(figure.case.split(",")[0], {}).setdefault(figure.subject, round_to(figure.value))
        return ratios

    forms: dict[Callable[[str], Any], str] = {
        by_model: "step_ratio round_ratio memory_ratio",
        by_subject: "loader_speedup loader_speedup_flamby parallel_speedup simulator_overhead",
        whole: "wire_bytes",
        one: "prototype_pass_ratio private_step_ratio data_wait aggregate_vs_numpy aggregate_vs_flare "
        "aggregate_vs_plain aggregate_ms aggregate_memory aggregate_memory_unbounded runner_ms_per_task secure_share "
        "import_seconds",
    }
    found = {name: form(name) for form, names in forms.items() for name in names.split()}
    overhead = found["simulator_overhead"] or None
    return found | {"simulator_overhead": overhead, "figures": [figure.as_dict() for figure in figures]}
