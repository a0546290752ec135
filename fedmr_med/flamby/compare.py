"""A whole comparison with FLamby: load the data once, do what is not done yet, write what came out."""

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from fedmr_med.errors import ConfigError, FedMRError
from fedmr_med.files import locked
from fedmr_med.flamby.checkout import HOW_TO_GET, find_strategies
from fedmr_med.flamby.material import load_material
from fedmr_med.flamby.progress import shown
from fedmr_med.flamby.request import CompareRequest
from fedmr_med.flamby.runs import Row, Workshop, runs_of
from fedmr_med.flamby.tables import notes, published_rows, write_outputs
from fedmr_med.process import kept_memory, set_threads


def compare(request: CompareRequest, out: Path) -> dict[str, Any]:
    """Do the runs that ``out`` has no rows of yet, and write ``results.json`` and ``results.csv`` there.

    Args:
        request: what to compare.
        out: folder of the comparison; a run that was stopped goes on from there.

    Returns:
        The content of ``results.json``: ``rows``, ``missing`` (what needs FLamby, if it is not there),
        ``how_to_get`` it, ``failed`` runs with the reason (the others go on), and ``notes``.

    Raises:
        ConfigError: a setting is not valid, or another process works in ``out``.
        DataError: data is missing or damaged.
    """
    set_threads()
    strategies, reason = find_strategies(request.flamby) if request.strategies else (None, "")
    try:
        with locked(out / ".lock", patience=0), kept_memory():
            return _compare(request, out, strategies, reason)
    except TimeoutError as e:
        raise ConfigError(f"Another process is working in {out}; wait for it or choose another --out.") from e


def _compare(request: CompareRequest, out: Path, strategies: ModuleType | None, reason: str) -> dict[str, Any]:
    material = load_material(request)
    workshop = Workshop(request, material, out / "rows", strategies)
    runs = runs_of(request, with_flamby=strategies is not None)
    pending = [run for run in runs if workshop.finished(run) is None]
    # FLamby prints on standard output, which belongs to the result.
    with shown(sum(run.steps(request) for run in pending)) as advance, redirect_stdout(sys.stderr):
        failed = []
        for run in pending:
            try:
                workshop.execute(run, partial(advance, run.name))
            except FedMRError as e:
                failed.append(f"{run.name}: {e}")
    rows: list[Row] = [row for run in runs for row in workshop.finished(run) or []]
    rows += published_rows(request)
    content = {
        "rows": rows,
        "missing": [f"flamby.strategies.{name}" for name in request.strategies if reason],
        "how_to_get": f"{reason}. {HOW_TO_GET}" if reason else "",
        "failed": failed,
        "notes": notes(request, material, rows),
        "updates": request.updates,
        "request": request.model_dump(mode="json"),
    }
    write_outputs(out, content)
    return content
