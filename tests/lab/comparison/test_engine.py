"""The engine of comparisons, with runs that take no time: order, resumption, failures, workers, locks."""

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from fedmr_med.errors import FedMRError, ResultsError
from fedmr_med.files import locked
from fedmr_med.lab.cli.common import OutOfHours, limited_to, resumable
from fedmr_med.lab.comparison.engine import LOCK, RUNS, Launcher, complete, exclusive
from fedmr_med.lab.comparison.following import ProgressFiles
from fedmr_med.lab.comparison.launchers import Local
from fedmr_med.lab.comparison.runs import ERROR, PROGRESS, RESULT, OnProgress, perform, read_progress, result_of
from fedmr_med.report.progress import Progress
from fedmr_med.schema import Strict
from tests.helpers.errors import raises


class Count(Strict):
    """The result of a counting run."""

    count: int
    error: str | None = None


@dataclass(frozen=True)
class Counting:
    """Counts to ``steps`` in a file, and resumes there. ``trouble`` comes before the last step."""

    name: str
    steps: int = 3
    trouble: Callable[[], None] | None = None
    title: str = "counting"

    @property
    def result_type(self) -> type[Count]:
        return Count

    def execute(self, folder: Path, on_progress: OnProgress) -> Count:
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "count"
        start = int(kept.read_text()) if kept.exists() else 0
        for number in range(start + 1, self.steps + 1):
            if number == self.steps and self.trouble:
                self.trouble()
            kept.write_text(str(number))
            on_progress(Progress(number, 1, f"at {number}"))
        return Count(count=self.steps - start)

    def failed(self, error: str) -> Count:
        return Count(count=0, error=error)

    def clean_up(self, folder: Path) -> None:
        assert (folder / RESULT).exists(), "the result is safe before anything is removed"
        (folder / "count").unlink()


def fail() -> None:
    raise FedMRError("out of numbers", code="run.failed")


def die() -> None:
    os._exit(9)


@dataclass(frozen=True)
class DieOnce:
    """Kills the process that calls it, unless it has done so before."""

    memory: Path

    def __call__(self) -> None:
        if not self.memory.exists():
            self.memory.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "checkpoint.pt")


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_results_come_in_the_order_of_the_runs_and_equal_names_run_once(workers: int, tmp_path: Path) -> None:
    runs = [Counting("b", steps=2), Counting("a", steps=1), Counting("b", steps=2), Counting("c", trouble=fail)]
    results = complete(runs, tmp_path, Local(workers), unit="step")
    assert [result.count for result in results] == [2, 1, 2, 0]
    assert results[3].error == "out of numbers"
    assert sorted(path.parent.name for path in tmp_path.rglob(RESULT)) == ["a", "b"], "a failure is not kept"


def test_what_stopped_resumes_and_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    assert perform(Counting("a", trouble=fail), tmp_path).error
    assert (tmp_path / "a" / "count").read_text() == "2", "what was reached stays"
    assert perform(Counting("a"), tmp_path) == Count(count=1)
    assert not (tmp_path / "a" / "count").exists()
    assert perform(Counting("a", trouble=die), tmp_path) == Count(count=1), "read, not run"
    assert result_of(Counting("b"), tmp_path) is None


@pytest.mark.slow
def test_a_run_whose_worker_dies_is_resumed_and_one_that_dies_again_fails_alone(tmp_path: Path) -> None:
    unlucky = Counting("unlucky", trouble=DieOnce(tmp_path / "memory"))
    doomed = Counting("doomed", trouble=die, title="doomed counting")
    results = complete([doomed, unlucky, Counting("a")], tmp_path / "out", Local(2), unit="step")
    assert "The process of doomed counting ended 2 times" in (results[0].error or "")
    assert "The same command resumes" in (results[0].error or "")
    assert (tmp_path / "out" / RUNS / "doomed" / "count").read_text() == "2", "what was reached stays"
    assert [result.count for result in results[1:]] == [1, 3], "resumed, not done again"


def test_a_full_disk_fails_the_run_and_not_the_others(tmp_path: Path) -> None:
    results = complete([Counting("a", trouble=no_space), Counting("b")], tmp_path, Local(0), unit="step")
    assert results[0].error == "No space left on device: checkpoint.pt. The same command resumes from what was reached."
    assert results[1].count == 3
    assert perform(Counting("a"), tmp_path / RUNS).count == 1


def test_a_failure_that_nobody_foresaw_fails_the_run_and_not_the_others(tmp_path: Path) -> None:
    def surprise() -> None:
        raise RuntimeError("the matrix is ill-conditioned")

    runs = [Counting("a", trouble=surprise), Counting("b")]
    for _ in range(2):  # a resumption meets it again
        results = complete(runs, tmp_path, Local(0), unit="step")
        assert "RuntimeError: the matrix is ill-conditioned" in (results[0].error or "")
        assert results[1].count == 3
    assert "in surprise" in (tmp_path / RUNS / "a" / ERROR).read_text()


def test_progress_is_in_a_file_for_whoever_looks(tmp_path: Path) -> None:
    assert read_progress(tmp_path / "a") == (0, "")
    perform(Counting("a", trouble=fail), tmp_path)
    seen: list[tuple[int, Progress]] = []
    files = ProgressFiles(["b", "a"], tmp_path, lambda number, progress: seen.append((number, progress)))
    perform(Counting("a"), tmp_path)
    files.look([0, 1])
    files.look([0, 1])
    ((number, progress),) = seen
    assert (number, progress.done, progress.note) == (1, 3, "at 3")
    assert progress.new >= 1
    for number in (0, 1):
        files.ended(number, steps=3)
    assert seen[1:] == [(0, Progress(3, 0))], "a run that ended early has no time left"
    (tmp_path / "a" / PROGRESS).write_text("[")
    assert read_progress(tmp_path / "a") == (0, "")


def test_a_launcher_is_a_function_of_runs_folder_and_progress(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def elsewhere(runs: Sequence[Any], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[Any]:
        seen.append([run.name for run in runs])
        return [perform(run, folder) for run in runs]

    launch: Launcher = elsewhere
    complete([Counting("a")], tmp_path, launch, unit="step")
    complete([Counting("a"), Counting("b")], tmp_path, launch, unit="step")
    assert complete([Counting("a")], tmp_path, launch, unit="step") == [Count(count=3)]
    assert seen == [["a"], ["b"]], "where all is done no cluster is needed"


def test_one_process_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path / LOCK, patience=0), raises("run.in-use", "--out"):
        complete([Counting("a")], tmp_path, Local(0), unit="step")
    with pytest.raises(TimeoutError, match="of the body"), exclusive(tmp_path):
        raise TimeoutError("of the body")
    with exclusive(tmp_path):
        pass


def test_a_result_of_another_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / RUNS / "a" / RESULT
    path.parent.mkdir(parents=True)
    path.write_text('{"count": 3}')
    with pytest.raises(ResultsError, match=r"no schema version.*Remove it or write to another folder"):
        complete([Counting("a")], tmp_path, Local(0), unit="step")


def test_a_command_whose_hours_are_over_stops_and_resumes(tmp_path: Path) -> None:
    patient = Counting("a", trouble=lambda: time.sleep(60))
    with pytest.raises(OutOfHours), limited_to(0.5 / 3600):
        complete([patient], tmp_path, Local(0), unit="step")
    assert (tmp_path / RUNS / "a" / "count").read_text() == "2"
    with limited_to(1):
        assert complete([Counting("a")], tmp_path, Local(0), unit="step") == [Count(count=1)]
    with limited_to(None):
        pass
    with pytest.raises(OutOfHours), limited_to(0):
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_command_says_how_to_go_on_when_its_hours_are_over(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stopped, resumable(0.2 / 3600):
        time.sleep(60)
    assert stopped.value.exit_code == 75
    assert "The same command resumes" in capsys.readouterr().err
    with pytest.raises(typer.Exit) as stopped, resumable(None):
        raise KeyboardInterrupt
    assert stopped.value.exit_code == 130
