"""A whole comparison of methods: check it, do what is not done yet, write what came out."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.results import RunResult, RunResults
from fedmr_med.files import check_writable, write_text
from fedmr_med.lab.bench import search
from fedmr_med.lab.bench.outputs import write_outputs
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.lab.bench.runs import Run, check
from fedmr_med.lab.comparison import engine
from fedmr_med.lab.comparison.launchers import ALL_CORES, Resources
from fedmr_med.lab.comparison.runs import result_of
from fedmr_med.schema import validated

SEARCH, REQUEST = "search", "request.json"


def compare(request: BenchRequest, out: Path, resources: Resources = ALL_CORES) -> RunResults:
    """Do the runs that ``out`` has no result of yet, and write results, curves and report there.

    With ``request.tune``, each method's settings are chosen first, in ``search`` below ``out``. A run that fails says
    so in its entry, and does not stop the others.

    Returns:
        The content of ``results.json``.

    Raises:
        ConfigError: a setting is not valid, ``out`` holds a comparison with other settings, or another process works
            in it.
        DataError: data is missing or damaged.
        ResultsError: a result in ``out`` is damaged, or of another version.
        FedMRError: a worker died.
    """
    claim(request, out)
    results = complete(tuned(request, out, resources).runs(), out, resources)
    write_outputs(out, results, request.title)
    return RunResults(runs=tuple(results))


def compare_settings(settings: dict[str, Any], out: Path, workers: int | None) -> RunResults:
    """Compare as :func:`compare` does, with the fields of a request by name and processes on this machine."""
    return compare(validated(BenchRequest, settings, "bench"), out, Resources(workers=workers))


def claim(request: BenchRequest, out: Path) -> None:
    """See that a comparison can be written to a folder, which holds no other one; more methods and seeds can join."""
    check(request.runs())
    check_writable(out)
    path, content = out / REQUEST, request.settings_of_all()
    if path.exists():
        try:
            known = dict(json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as e:
            why = f"{path} cannot be read; choose another --out."
            raise ConfigError(why, code="file.unreadable", key="--out") from e
        other = sorted(key for key in known.keys() | content.keys() if known.get(key) != content.get(key))
        if other:
            was = ", ".join(f"{key} {known.get(key)}" for key in other)
            why = f"{out} holds a comparison with other settings ({was}); choose another --out."
            raise ConfigError(why, code="run.other-settings", key="--out")
    write_text(path, json.dumps(content, indent=1))


def tuned(request: BenchRequest, out: Path, resources: Resources = ALL_CORES) -> BenchRequest:
    """Return a comparison with the settings that are best for each method on held-out training data, if it asks so."""
    tried = search.candidates(request)
    if not tried:
        return request
    results = complete([run for option in tried for run in option.runs()], out / SEARCH, resources)
    write_outputs(out / SEARCH, results, request.model_copy(update={"held_out": search.HELD_OUT}).title)
    return request.model_copy(update={"chosen": search.best(tried, results)})


def complete(runs: Sequence[Run], out: Path, resources: Resources = ALL_CORES) -> list[RunResult]:
    """Do the runs that ``out`` has no result of yet, and return the entries of all, in their order."""
    check(runs)
    pending = {run.name for run in runs if result_of(run, out / engine.RUNS) is None}
    launch, clients = resources.launch(len(pending))
    results = engine.complete([replace(run, parallel_clients=clients) for run in runs], out, launch, unit="round")
    # Runs of the same settings under two labels are one run.
    return [result.model_copy(update={"label": run.label}) for run, result in zip(runs, results, strict=True)]
