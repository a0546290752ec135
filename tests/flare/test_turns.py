"""Whose turn it is among simulated sites: one per core, most to do first, and nobody waits for the dead."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from fedmr_med.flare.turns import turn


def wait_until(path: Path) -> None:
    give_up = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up, path
        time.sleep(0.01)


class Site(threading.Thread):
    """Takes one turn and writes its name down while it has it."""

    def __init__(self, folder: Path, name: str, order: list[str]):
        super().__init__(daemon=True)
        self.folder, self.site, self.order = folder, name, order
        self.start()

    def run(self) -> None:
        with turn(self.folder, self.site, 1):
            self.order.append(self.site)


def test_the_site_whose_last_turn_took_longest_goes_first(tmp_path: Path) -> None:
    for name, seconds in (("small", "1"), ("large", "30"), ("middle", "5")):
        (tmp_path / f"{name}.seconds").write_text(seconds)
    order: list[str] = []
    with turn(tmp_path, "busy", 1):
        sites = [Site(tmp_path, name, order) for name in ("small", "middle", "large", "new")]
        for site in sites:
            wait_until(tmp_path / f"{site.site}.waiting")
        time.sleep(0.3)
        assert order == [], "one core, and it is taken"
    for site in sites:
        site.join(timeout=60)
    assert order == ["new", "large", "middle", "small"], "a site that had no turn yet is taken for large"


def test_as_many_sites_work_at_a_time_as_there_are_cores(tmp_path: Path) -> None:
    with ExitStack() as both:
        both.enter_context(turn(tmp_path, "a", 2))
        both.enter_context(turn(tmp_path, "b", 2))
        assert {path.name for path in tmp_path.iterdir()} >= {"core-0", "core-1"}


def test_a_process_that_was_killed_neither_holds_a_core_nor_a_place_in_the_queue(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from fedmr_med.flare.turns import turn
with turn(Path({str(tmp_path)!r}), "dead", 1):
    Path({str(tmp_path / "at_work")!r}).touch()
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_until(tmp_path / "at_work")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    order: list[str] = []
    (tmp_path / "b.seconds").write_text("1")
    Site(tmp_path, "b", order).join(timeout=60)
    assert order == ["b"]
