"""A whole comparison of methods: check it, do what is not done yet, write what came out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedmr_med.bench import search
from fedmr_med.bench.outputs import REPORT, RESULTS, screen_differences, screen_table, write_outputs
from fedmr_med.bench.request import BenchRequest
from fedmr_med.bench.runs import Run, check
from fedmr_med.comparison import engine
from fedmr_med.comparison.local import Local
from fedmr_med.comparison.run import result_of
from fedmr_med.process import asked_threads, available_cores
from fedmr_med.report.console import wide_console
from fedmr_med.results import RunResult

SEARCH = "search"


def compare(
    runs: Sequence[Run],
    out: Path,
    *,
    title: str,
    workers: int | None = None,
    parallel_clients: int | None = None,
    quiet: bool = False,
) -> list[RunResult]:
    """Do the runs that ``out`` has no result of yet, and write results, curves and report there.

    Args:
        runs: what to compare.
        out: folder of the comparison.
        title: one line above table and curves.
        workers: runs side by side; None uses the cores, 0 this process.
        parallel_clients: clients side by side within each run; None uses the cores that the runs leave idle.
        quiet: print no table on standard output.

    Returns:
        The entries of ``results.json``, in the order of ``runs``.

    Raises:
        ConfigError: a setting is not valid, or another process works in ``out``.
        DataError: data is missing or damaged.
        ResultsError: a result in ``out`` is damaged, or of another version.
        FedMRError: a worker died.
    """
    results = complete(runs, out, workers, parallel_clients)
    write_outputs(out, results, title)
    if not quiet:
        console = wide_console(140)
        console.print(screen_table(results, title))
        if against_first := screen_differences(results):
            console.print(against_first)
        console.print(f"results: {out / RESULTS}\nreport:  {out / REPORT}", highlight=False)
    return results


def tuned(
    request: BenchRequest,
    out: Path,
    *,
    seed: int,
    rounds: int | None = None,
    workers: int | None = None,
    parallel_clients: int | None = None,
) -> BenchRequest:
    """Choose a coefficient for each method of a comparison on held-out training data, and return it with them.

    Args:
        request: the comparison.
        out: its folder; the search leaves its results in ``search`` below it, and resumes there.
        seed, rounds: of the runs of the search; see :func:`fedmr_med.bench.search.candidates`.
        workers, parallel_clients: as for :func:`compare`.

    Raises:
        ConfigError, DataError, ResultsError, FedMRError: as for :func:`compare`.
    """
    tried = search.candidates(request, seed, rounds)
    if not tried:
        return request
    results = complete([run for option in tried for run in option.runs()], out / SEARCH, workers, parallel_clients)
    held_out = request.model_copy(update={"held_out": search.HELD_OUT})
    write_outputs(out / SEARCH, results, title(held_out))
    return request.model_copy(update={"chosen": search.best(tried, results)})


def complete(
    runs: Sequence[Run], out: Path, workers: int | None = None, parallel_clients: int | None = None
) -> list[RunResult]:
    """Do the runs that ``out`` has no result of yet, and return the entries of all; see :func:`compare`."""
    check(runs)
    pending = {run.name for run in runs if result_of(run, out / engine.RUNS) is None}
    workers, clients = processes(len(pending), workers, parallel_clients)
    spread = [replace(run, parallel_clients=clients) for run in runs]
    results = engine.complete(spread, out, Local(workers), unit="round")
    # Runs of the same settings under two labels are one run.
    return [result.model_copy(update={"label": run.label}) for run, result in zip(runs, results, strict=True)]


def processes(pending: int, workers: int | None, parallel_clients: int | None) -> tuple[int, int]:
    """Return how many runs go side by side, and how many clients within each: one busy process for each core.

    Args:
        pending: runs to do.
        workers, parallel_clients: as asked for; None leaves it to the cores. Runs come first, since they have nothing
            to wait for.
    """
    cores = max(available_cores() // (asked_threads() or 1), 1)
    if workers is None:
        workers = max(min(cores // (parallel_clients or 1), pending), 1)
    if parallel_clients is None:
        parallel_clients = max(cores // workers, 1) if workers else 1
    return workers, parallel_clients


def title(request: BenchRequest) -> str:
    """Return one line that says what is compared."""
    scored_on = "held-out training data: " if request.held_out else ""
    return f"{scored_on}{request.dataset} {request.split or ''}: {', '.join(request.methods)}".replace(" :", ":")
