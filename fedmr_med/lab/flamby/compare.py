"""A whole comparison with FLamby: do what is not done yet, write what came out."""

from pathlib import Path

from fedmr_med.lab.comparison import engine
from fedmr_med.lab.comparison.local import Local
from fedmr_med.lab.flamby.checkout import HOW_TO_GET, find_strategies
from fedmr_med.lab.flamby.data import load_data
from fedmr_med.lab.flamby.request import CompareRequest
from fedmr_med.lab.flamby.results import FlambyResults
from fedmr_med.lab.flamby.runs import runs_of
from fedmr_med.lab.flamby.tables import notes, published_rows, write_outputs
from fedmr_med.process import available_cores, set_threads


def compare(request: CompareRequest, out: Path, *, workers: int = 0) -> FlambyResults:
    """Do the runs that ``out`` has no result of yet, and write ``results.json`` and ``results.csv`` there.

    Args:
        request: what to compare.
        out: folder of the comparison; a run that was stopped resumes there.
        workers: runs side by side, which share the cores; 0 does one after the other in this process.

    Returns:
        The content of ``results.json``. A run that fails does not stop the others.

    Raises:
        ConfigError: a setting is not valid, or another process works in ``out``.
        DataError: data is missing or damaged.
        ResultsError: a result in ``out`` is damaged, or of another version.
        FedMRError: a worker died.
    """
    set_threads()
    strategies, reason = find_strategies(request.flamby) if request.strategies else (None, "")
    runs = runs_of(request, with_flamby=strategies is not None)
    try:
        data = load_data(request)
        launch = Local(workers, threads=max(available_cores() // max(workers, 1), 1))
        finished = engine.complete(runs, out, launch, unit="local step")
    finally:
        load_data.cache_clear()
    rows = (*(row for result in finished for row in result.rows), *published_rows(request))
    results = FlambyResults(
        rows=rows,
        missing=tuple(f"flamby.strategies.{name}" for name in request.strategies if reason),
        how_to_get=f"{reason}. {HOW_TO_GET}" if reason else "",
        failed=tuple(
            f"{run.title}: {result.error}" for run, result in zip(runs, finished, strict=True) if result.error
        ),
        notes=tuple(notes(request, data, rows)),
        updates=request.updates,
        request=request,
    )
    write_outputs(out, results, "fed_isic2019")
    return results
