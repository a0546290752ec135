"""A whole comparison with FLamby: do what is not done yet, write what came out."""

from collections.abc import Sequence
from pathlib import Path

from fedmr_med.lab.comparison import engine
from fedmr_med.lab.comparison.launchers import Local
from fedmr_med.lab.flamby.checkout import HOW_TO_GET, find_dataset, find_strategies, published, results_of
from fedmr_med.lab.flamby.data import load_data
from fedmr_med.lab.flamby.datasets import known_set
from fedmr_med.lab.flamby.isic import IsicRun
from fedmr_med.lab.flamby.request import CompareRequest, SetRequest
from fedmr_med.lab.flamby.results import FlambyResults, Row, RunRows
from fedmr_med.lab.flamby.runs import Training, planned
from fedmr_med.lab.flamby.sets import set_notes, set_runs
from fedmr_med.lab.flamby.tables import differences, notes, published_rows, write_outputs
from fedmr_med.process import available_cores, set_threads


def compare(request: CompareRequest | SetRequest, out: Path, *, workers: int = 0) -> FlambyResults:
    """Do the runs that ``out`` has no result of yet; write ``results.json``, ``results.csv`` and ``report.html``.

    ``workers`` runs go side by side and share the cores; 0 does one after the other in this process. A run that fails
    does not stop the others.

    Raises:
        ConfigError: a setting is not valid, another process works in ``out``, or FLamby is not there, without which
            only Fed-ISIC2019 can be compared.
        DataError: data is missing or damaged.
        ResultsError: a result in ``out`` is damaged, or of another version.
        FedMRError: a worker died.
    """
    set_threads()
    launch = Local(workers, threads=max(available_cores() // max(workers, 1), 1))
    results = _on_set(request, out, launch) if isinstance(request, SetRequest) else _on_isic(request, out, launch)
    write_outputs(out, results)
    return results


def _on_isic(request: CompareRequest, out: Path, launch: Local) -> FlambyResults:
    """Compare on Fed-ISIC2019: through the executor, and FLamby's strategies on the executor's batches."""
    strategies, reason = find_strategies(request.flamby) if request.strategies else (None, "")
    chosen = () if strategies is None else request.strategies
    runs = planned(IsicRun, request, "ours", request.centers, chosen, request.policies)
    try:
        data = load_data(request)
        finished = engine.complete(runs, out, launch, unit="local step")
    finally:
        load_data.cache_clear()
    theirs = published_rows(published().results, "balanced_accuracy", differences(request))
    return _results(request, runs, finished, theirs, notes(request, data, runs), reason)


def _on_set(request: SetRequest, out: Path, launch: Local) -> FlambyResults:
    """Compare on another dataset, as FLamby's own benchmark does."""
    runs = set_runs(request)
    results, lines = results_of(find_dataset(request.flamby, request.dataset)), set_notes(request, runs)
    finished = engine.complete(runs, out, launch, unit="run")
    theirs = published_rows(results, known_set(request.dataset).metric, lines[-1:])
    return _results(request, runs, finished, theirs, lines)


def _results(
    request: CompareRequest | SetRequest,
    runs: Sequence[Training],
    finished: Sequence[RunRows],
    theirs: Sequence[Row],
    lines: Sequence[str],
    reason: str = "",
) -> FlambyResults:
    """Return what the runs gave with the published rows; ``reason`` is why FLamby's strategies are missing."""
    return FlambyResults(
        rows=(*(row for result in finished for row in result.rows), *theirs),
        missing=tuple(f"flamby.strategies.{name}" for name in request.strategies or () if reason),
        how_to_get=f"{reason}. {HOW_TO_GET}" if reason else "",
        failed=tuple(f"{run.title}: {r.error}" for run, r in zip(runs, finished, strict=True) if r.error),
        notes=tuple(lines),
        updates=request.updates,
        request=request,
    )
