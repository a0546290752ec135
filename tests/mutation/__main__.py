"""Run mutants of some modules, and fail where one survives that ``baseline.yaml`` does not accept."""

import argparse
import hashlib
import importlib
import resource
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from tests.mutation.covering import module_name
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.running import SURVIVED, Runner

REPOSITORY = Path(__file__).resolve().parents[2]
BASELINE = Path(__file__).with_name("baseline.yaml")
RECORD = REPOSITORY / "build" / "mutation.jsonl"

Accepted = dict[str, dict[str, dict[str, str]]]
"""Why a mutant may survive, by module, function and change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no mutant survives but those that are accepted."""
    options = parse(arguments)
    every = [mutant for path in options.module for module in modules(path) for mutant in mutants(REPOSITORY, module)]
    accepted: Accepted = yaml.safe_load(BASELINE.read_text(encoding="utf-8")) or {}
    for line in unknown(accepted, every):
        print(f"baseline.yaml accepts what is not in the code any more: {line}")
    if options.mutant:
        chosen = [mutant for mutant in every if mutant.id in options.mutant]
    else:
        chosen = [mutant for mutant in every if not is_accepted(mutant, accepted)]
    if 0 < options.sample < len(chosen):
        chosen = sample(chosen, options.sample, options.seed)
    print(f"{len(chosen)} of {len(every)} mutants, seed {options.seed}", flush=True)
    for module in dict.fromkeys(mutant.module for mutant in every):
        importlib.import_module(module_name(module))  # the children forget it again, and keep what it imports
    runner = Runner(REPOSITORY, options.workers, None if options.mutant else RECORD, silent=not options.mutant)
    if not options.mutant and not runner.check_tests(chosen):
        print("a test fails without a mutant; run pytest first")
        return 2
    outcomes = runner.run(chosen)
    survivors = [mutant for mutant in chosen if outcomes[mutant.id] == SURVIVED]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(chosen)} mutants, {len(survivors)} survived, {usage.ru_utime + usage.ru_stime:.0f} s of CPU")
    for mutant in survivors:
        print(f"survived: {mutant.name}\n    again: make mutation MUTANT={mutant.id}")
    return 1 if survivors else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--module", nargs="+", required=True, help="files or folders of the package")
    parser.add_argument("--sample", type=int, default=0, help="how many mutants to draw; 0 takes all")
    parser.add_argument("--seed", type=int, default=int(f"{datetime.now(UTC):%Y%m%d}"), help="of the sample; the date")
    parser.add_argument("--mutant", nargs="*", default=[], help="ids of the only mutants to run, with pytest's output")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    return parser.parse_args(arguments)


def sample(every: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Return mutants chosen by their ids, so that new code elsewhere leaves the others in the sample."""
    return sorted(every, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.id}".encode()).digest())[:size]


def modules(path: str) -> list[str]:
    """Return the modules of a file or folder, below the repository."""
    place = REPOSITORY / path
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [str(file.relative_to(REPOSITORY)) for file in files]


def is_accepted(mutant: Mutant, accepted: Accepted) -> bool:
    """Whether the baseline lets a mutant survive."""
    return mutant.change in accepted.get(mutant.module, {}).get(mutant.function or "(module)", {})


def unknown(accepted: Accepted, every: Sequence[Mutant]) -> list[str]:
    """Return what the baseline says of these modules and no mutant is called."""
    names = {mutant.name for mutant in every}
    modules = {mutant.module for mutant in every}
    lines = [
        f"{m} {f}: {change}" for m, fs in accepted.items() if m in modules for f, cs in fs.items() for change in cs
    ]
    return [line for line in lines if line not in names]


if __name__ == "__main__":
    sys.exit(main())
