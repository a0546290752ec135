"""A comparison on any of FLamby's classification datasets, read by FLamby's own classes."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.results import read_result, write_result
from fedmr_med.evaluation.score import Score
from fedmr_med.lab.flamby.data import POOLED_TEST
from fedmr_med.lab.flamby.job import flamby_job
from fedmr_med.lab.flamby.results import Row, SetRequest, SetResults
from fedmr_med.lab.flamby.tables import RESULTS, write_outputs
from fedmr_med.runner import Federation
from fedmr_med.schema import Strict

HIDDEN = 16
"""Units of the hidden layer before a Baseline that is one linear layer."""

_LINEAR = ("fed_heart_disease",)


class _Rows(Strict):
    rows: tuple[Row, ...]


def compare_on(request: SetRequest, out: Path) -> SetResults:
    """Do the runs that ``out`` has no result of yet, and write ``results.json``, ``results.csv`` and ``report.html``.

    Raises:
        ConfigError: FLamby is not there, or the dataset is not about classes.
        DataError: FLamby cannot read the data.
    """
    rows = [row for seed in request.seeds for method in request.methods for row in _run(request, method, seed, out)]
    linear = f"FLamby's Baseline is one linear layer; here it has a hidden layer of {HIDDEN} units."
    notes = [
        f"{request.dataset}: read by FLamby's own classes; our methods alone, on FLamby's settings.",
        *([linear] if request.dataset in _LINEAR else []),
    ]
    results = SetResults(rows=tuple(rows), notes=tuple(notes), request=request)
    write_outputs(out, results, request.dataset)
    return results


def _run(request: SetRequest, method: str, seed: int, out: Path) -> tuple[Row, ...]:
    changes: dict[str, JsonValue] = {"train.updates": request.updates}
    if request.rounds is not None:
        changes["federation.rounds"] = request.rounds
    if request.dataset in _LINEAR:
        changes["model.options.hidden"] = HIDDEN
    job, sites = flamby_job(
        request.dataset, method, root=request.data, flamby=request.flamby, seed=seed, changes=changes
    )
    folder = out / f"{method}-seed{seed}-{job.digest()}-{job.federation.rounds}"
    done = folder / RESULTS
    if done.exists():
        return read_result(done, _Rows).rows
    state = Federation(job, sites, folder / "federation").run()
    final = state.history.evaluations[-1]
    if final.pooled is None:
        raise FedMRError(f"{method}: no centre of {request.dataset} has test data.", code="data.empty")
    settings: dict[str, JsonValue] = {"learning_rate": job.train.lr, **job.method.options}
    rows = tuple(
        Row(
            method=method,
            source="ours",
            bn="first" if job.federation.buffers == "first" else "average",
            test=test,
            balanced_accuracy=score,
            seed=seed,
            images=images,
            settings=settings,
        )
        for test, score, images in _scores(final.pooled, final.sites)
    )
    write_result(done, _Rows(rows=rows))
    return rows


def _scores(pooled: Score, sites: Mapping[str, Score]) -> list[tuple[str, float, int]]:
    named = [(POOLED_TEST, pooled), *sites.items()]
    return [(test, score.mean_recall, score.samples) for test, score in named if score.mean_recall is not None]
