"""A whole comparison of methods: check it, do what is not done yet, write what came out."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.results import RunResult
from fedmr_med.files import check_writable, write_text
from fedmr_med.lab.bench import search
from fedmr_med.lab.bench.outputs import REPORT, RESULTS, screen_more_tables, screen_table, write_outputs
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.lab.bench.runs import Run, check
from fedmr_med.lab.comparison import engine
from fedmr_med.lab.comparison.launchers import ALL_CORES, Resources
from fedmr_med.lab.comparison.one_run import result_of
from fedmr_med.report.console import wide_console

SEARCH, REQUEST = "search", "request.json"


def claim(request: BenchRequest, out: Path) -> None:
    """See that a comparison can be written to a folder, which holds no other one; more methods and seeds can join.

    Raises:
        ConfigError: a setting is not valid, or the folder holds a comparison with other settings.
        DataError: data is missing.
        OSError: it cannot be written.
    """
    check(request.runs())
    check_writable(out)
    path, content = out / REQUEST, request.model_dump(mode="json", exclude={"methods", "seeds"})
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as e:
            raise ConfigError(
                f"{path} cannot be read; choose another --out.", code="file.unreadable", key="--out"
            ) from e
        other = sorted(key for key in known.keys() | content.keys() if known.get(key) != content.get(key))
        if other:
            was = ", ".join(f"{key} {known.get(key)}" for key in other)
            raise ConfigError(
                f"{out} holds a comparison with other settings ({was}); choose another --out.",
                code="run.other-settings",
                key="--out",
            )
    write_text(path, json.dumps(content, indent=1))


def compare(
    runs: Sequence[Run],
    out: Path,
    *,
    title: str,
    resources: Resources = ALL_CORES,
    quiet: bool = False,
) -> list[RunResult]:
    """Do the runs that ``out`` has no result of yet, and write results, curves and report there.

    Args:
        runs: what to compare.
        out: folder of the comparison.
        title: one line above table and curves.
        resources: where and with how many processes.
        quiet: print no table on standard output.

    Returns:
        The entries of ``results.json``, in the order of ``runs``.

    Raises:
        ConfigError: a setting is not valid, or another process works in ``out``.
        DataError: data is missing or damaged.
        ResultsError: a result in ``out`` is damaged, or of another version.
        FedMRError: a worker died.
    """
    results = complete(runs, out, resources)
    write_outputs(out, results, title)
    if not quiet:
        console = wide_console(140)
        console.print(screen_table(results, title))
        for table in screen_more_tables(results):
            console.print(table)
        console.print(f"results: {out / RESULTS}\nreport:  {out / REPORT}", highlight=False)
    return results


def tuned(
    request: BenchRequest,
    out: Path,
    *,
    seed: int,
    rounds: int | None = None,
    resources: Resources = ALL_CORES,
) -> BenchRequest:
    """Choose settings for each method of a comparison on held-out training data, and return it with them.

    Args:
        request: the comparison.
        out: its folder; the search leaves its results in ``search`` below it, and resumes there.
        seed, rounds: of the runs of the search; see :func:`fedmr_med.lab.bench.search.candidates`.
        resources: as for :func:`compare`.

    Raises:
        ConfigError, DataError, ResultsError, FedMRError: as for :func:`compare`.
    """
    tried = search.candidates(request, seed, rounds)
    if not tried:
        return request
    results = complete([run for option in tried for run in option.runs()], out / SEARCH, resources)
    held_out = request.model_copy(update={"held_out": search.HELD_OUT})
    write_outputs(out / SEARCH, results, title(held_out))
    return request.model_copy(update={"chosen": search.best(tried, results)})


def complete(runs: Sequence[Run], out: Path, resources: Resources = ALL_CORES) -> list[RunResult]:
    """Do the runs that ``out`` has no result of yet, and return the entries of all; see :func:`compare`."""
    check(runs)
    pending = {run.name for run in runs if result_of(run, out / engine.RUNS) is None}
    launch, clients = resources.launch(len(pending))
    spread = [replace(run, parallel_clients=clients) for run in runs]
    results = engine.complete(spread, out, launch, unit="round")
    # Runs of the same settings under two labels are one run.
    return [result.model_copy(update={"label": run.label}) for run, result in zip(runs, results, strict=True)]


def title(request: BenchRequest) -> str:
    """Return one line that says what is compared."""
    scored_on = "held-out training data: " if request.held_out else ""
    return f"{scored_on}{request.dataset} {request.split or ''}: {', '.join(request.methods)}".replace(" :", ":")
