"""Runs mutants, each in a child of a process that has imported the heavy packages already."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, ModuleType

import pytest

from tests.mutation.covering import Covering, module_name
from tests.mutation.mutants import Mutant

SURVIVED, KILLED = "survived", "killed"

PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)

Tests = Sequence[Sequence[str]]
"""Files of tests in steps: the next one is run where the last one passed."""

CPU_SECONDS, WALL_SECONDS = 400, 1800
"""What the tests of a mutant may take; a mutant that loops or waits for ever is killed by that."""


class MutatedModule(SourceFileLoader):
    """Imports one module as a mutant of it."""

    def __init__(self, mutant: Mutant, repository: Path):
        super().__init__(module_name(mutant.module), str(repository / mutant.module))
        self.mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Load the mutated module, and leave all others to Python."""
        if fullname != self.name:
            return None
        folder = [str(Path(self.path).parent)] if self.is_package(fullname) else None
        return spec_from_file_location(fullname, self.path, loader=self, submodule_search_locations=folder)

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the mutant."""
        return self.mutant.compiled()


def run_tests(repository: Path, steps: Tests, folder: Path, mutant: Mutant | None, silent: bool) -> None:
    """Run tests in this process, which ends with the exit code of pytest; on a mutant, or on the code as it is."""
    os.setsid()
    if silent:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if mutant is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        _forget({module_name(mutant.module).split(".")[0], "tests"})
        sys.meta_path.insert(0, MutatedModule(mutant, repository))
    # Hypothesis draws the same examples every time with its profile for continuous integration, and stores none.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=ci"]
    options += [f"--basetemp={folder}"]
    # What takes long is asked last, of the mutants that are still alive.
    kinds = ("not slow and not nightly", "slow and not nightly and not federation")
    codes = (int(pytest.main([*options, "-m", kind, *tests])) for kind in kinds for tests in steps)
    code = next((code for code in codes if code not in PASSED), 0)
    sys.stdout.flush()
    os._exit(code)


class Runner:
    """Runs mutants side by side. Outcomes are written down at once, so that a run that was interrupted goes on.

    Args:
        repository: folder with the package and its tests; the working directory.
        workers: how many run at a time.
        record: file of the outcomes; those of a module that changed since, or whose tests did, do not count. None
            runs every mutant again.
        silent: whether what the tests print stays off the screen.
    """

    def __init__(self, repository: Path, workers: int, record: Path | None, *, silent: bool = True):
        self.repository, self.workers, self.record, self.silent = repository, workers, record, silent
        self.covering = Covering(repository)

    def check_tests(self, chosen: Sequence[Mutant]) -> bool:
        """Whether the tests of the mutants pass on the code as it is: what fails anyway kills nothing."""
        modules = dict.fromkeys(mutant.module for mutant in chosen)
        tests = dict.fromkeys(test for module in modules for step in self.covering.tests(module) for test in step)
        with TemporaryDirectory(prefix="mutation-") as folder:
            process = self._start([list(tests)], Path(folder) / "tests", None)
            process.join()
            _end(process)
        return process.exitcode == 0

    def run(self, chosen: Sequence[Mutant]) -> dict[str, str]:
        """Return the outcome of every mutant, by its id."""
        outcomes = self._recorded(chosen)
        waiting = [mutant for mutant in chosen if mutant.id not in outcomes]
        running: dict[BaseProcess, tuple[Mutant, float]] = {}
        with TemporaryDirectory(prefix="mutation-") as folder:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    mutant = waiting.pop(0)
                    tests = self.covering.tests(mutant.module)
                    running[self._start(tests, Path(folder) / mutant.id, mutant)] = mutant, time.monotonic()
                wait([process.sentinel for process in running], timeout=10)
                for process, (mutant, start) in list(running.items()):
                    if process.is_alive() and time.monotonic() - start < WALL_SECONDS:
                        continue
                    _end(process)
                    del running[process]
                    shutil.rmtree(Path(folder) / mutant.id, ignore_errors=True)
                    outcomes[mutant.id] = SURVIVED if process.exitcode == 0 else KILLED
                    self._write(mutant, outcomes[mutant.id])
                    print(f"{len(outcomes):5}/{len(chosen)} {outcomes[mutant.id]:8} {mutant.name}", flush=True)
        return outcomes

    def _start(self, tests: Tests, folder: Path, mutant: Mutant | None) -> BaseProcess:
        arguments = self.repository, tests, folder, mutant, self.silent
        process = multiprocessing.get_context("fork").Process(target=run_tests, args=arguments)
        process.start()
        return process

    def _write(self, mutant: Mutant, outcome: str) -> None:
        if self.record is None:
            return
        self.record.parent.mkdir(parents=True, exist_ok=True)
        entry = {"id": mutant.id, "sources": self.covering.digest(mutant.module), "outcome": outcome}
        with self.record.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry | {"name": mutant.name}) + "\n")

    def _recorded(self, chosen: Sequence[Mutant]) -> dict[str, str]:
        if self.record is None or not self.record.exists():
            return {}
        lines = self.record.read_text(encoding="utf-8").splitlines()
        known = {(entry["id"], entry["sources"]): entry["outcome"] for entry in map(json.loads, lines)}
        sources = {module: self.covering.digest(module) for module in {mutant.module for mutant in chosen}}
        keys = {mutant.id: (mutant.id, sources[mutant.module]) for mutant in chosen}
        return {name: known[key] for name, key in keys.items() if key in known}


def _forget(packages: set[str]) -> None:
    """Let the next import of the packages start afresh."""
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        del sys.modules[name]


def _end(process: BaseProcess) -> None:
    """End a child and whatever its tests have started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid or os.getpid(), signal.SIGKILL)
    process.join()
