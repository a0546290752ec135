"""A whole comparison: check it, do what is not done yet, write what came out."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fedmr_med.bench.outputs import REPORT, RESULTS, screen_table, write_outputs
from fedmr_med.bench.pool import run_all
from fedmr_med.bench.progress import shown
from fedmr_med.bench.request import BenchRequest
from fedmr_med.bench.runs import Run, check, result_of
from fedmr_med.errors import ConfigError
from fedmr_med.process import available_cores


def compare(
    runs: Sequence[Run], out: Path, *, title: str, workers: int | None = None, quiet: bool = False
) -> list[dict[str, Any]]:
    """Do the runs that ``out`` has no result of yet, and write results, curves and report there.

    Args:
        runs: what to compare.
        out: folder of the comparison.
        title: one line above table and curves.
        workers: runs side by side; None uses the cores, 0 this process.
        quiet: print no table on standard output.

    Returns:
        The entries of ``results.json``, in the order of ``runs``.

    Raises:
        ConfigError: a setting is not valid, or another process works in ``out``.
        DataError: data is missing or damaged.
        FedMRError: a worker died.
    """
    results = complete(runs, out, workers)
    write_outputs(out, results, title)
    if not quiet:
        console = Console(width=None if Console().is_terminal else 120)
        console.print(screen_table(results, title))
        console.print(f"results: {out / RESULTS}\nreport:  {out / REPORT}", highlight=False)
    return results


def complete(runs: Sequence[Run], out: Path, workers: int | None = None) -> list[dict[str, Any]]:
    """Do the runs that ``out`` has no result of yet, and return the entries of all; see :func:`compare`."""
    check(runs)
    with _locked(out):
        folder = out / "runs"
        # Runs of the same settings under two labels are one run.
        pending = list({run.name: run for run in runs if result_of(run, folder) is None}.values())
        cores = available_cores() if workers is None else workers
        with shown(pending) as after_round:
            fresh = run_all(pending, folder, cores, after_round)
    entries = {run.name: entry for run, entry in zip(pending, fresh, strict=True)}
    return [(entries.get(run.name) or result_of(run, folder) or {}) | {"label": run.label} for run in runs]


def title(request: BenchRequest) -> str:
    """Return one line that says what is compared."""
    return f"{request.dataset} {request.split or ''}: {', '.join(request.methods)}".replace(" :", ":")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keep a second process out of a folder; the lock goes with the process that holds it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise ConfigError(f"Another process is working in {out}; wait for it or choose another --out.") from e
        yield
