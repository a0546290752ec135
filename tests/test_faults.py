"""The fault hook does nothing unless asked, and then stops exactly at the named point."""

import threading
from pathlib import Path

import pytest

from fedmr_med import faults


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(faults.FAULTS_VARIABLE, raising=False)
    faults.reach("train-1")
    monkeypatch.setenv(faults.FAULTS_VARIABLE, str(tmp_path))
    faults.reach("train-1")
    assert list(tmp_path.iterdir()) == []


def test_an_armed_point_stops_until_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(faults.FAULTS_VARIABLE, str(tmp_path))
    (tmp_path / "train-1").touch()
    faults.reach("train-2")
    thread = threading.Thread(target=faults.reach, args=("train-1",))
    thread.start()
    while not (tmp_path / "train-1.reached").exists():
        thread.join(timeout=0.01)
        assert thread.is_alive()
    (tmp_path / "train-1").unlink()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert caplog.messages == ["stopped at the point 'train-1' by FEDMR_MED_FAULTS"]
