"""What people see of long runs while they go on."""

import time
from dataclasses import dataclass

import pytest

from fedmr_med.report.progress import Progress, show_progress


@dataclass(frozen=True)
class Run:
    title: str
    steps: int


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    runs = [Run("first", 100), Run("second", 50)]
    with show_progress(runs, "round") as on_progress:
        for number, progress, seconds in (
            (0, Progress(1, 1, "accuracy 0.5"), 10),
            (0, Progress(2, 1), 10),
            (1, Progress(49, 1), 20),  # resumed: the 48 rounds before took no time now
            (1, Progress(50, 1), 0),
        ):
            now[0] += seconds
            on_progress(number, progress)
    assert capsys.readouterr().err.splitlines() == [
        "first: round 1/100, accuracy 0.5; about 24 min 50 s left in all",
        "second: round 49/50; about 22 min 0 s left in all",
        "second: round 50/50; about 16 min 20 s left in all",
    ]
