"""The live page shows what a real controller says: who is expected, at work, late, refused or missing."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmr_med.deploy.live import LivePage, command_of, notify
from fedmr_med.deploy.session import JobInfo
from fedmr_med.errors import ConfigError
from fedmr_med.flare.progress import past_rounds
from tests.flare.test_controller import good, with_nan
from tests.helpers.controller import ControllerAtWork
from tests.helpers.errors import raises
from tests.helpers.reports import made_up_history
from tests.helpers.small import small_job

SITES = ("bcn", "msk", "vienna-dias")
JOB = small_job(federation={"min_sites": 2, "rounds": 2, "grace_seconds": 60})
INFO = JobInfo("job1", "job1", "isic", "lead", "", "RUNNING", (*SITES, "rosendahl"), 2)


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[ControllerAtWork]:
    with ControllerAtWork(tmp_path / "server", JOB, SITES).running() as running:
        yield running


def rows(page: Path) -> dict[str, str]:
    """What the table of hospitals says of each."""
    table = page.read_text(encoding="utf-8").split("<caption>Expected hospitals")[1].split("</table>")[0]
    found = re.findall(r'<th scope="row">(.*?)</th><td data-column="now" class="\w*">(.*?)</td>', table)
    return dict(found)


def test_the_page_says_what_each_hospital_does(at_work: ControllerAtWork, tmp_path: Path) -> None:
    page = tmp_path / "live.html"
    now = [0.0]
    live = LivePage(page, "job1", clock=lambda: now[0])
    assert 'http-equiv="refresh"' in page.read_text(encoding="utf-8")
    tasks = {site: at_work.receive(site) for site in SITES}
    at_work.answer("bcn", tasks["bcn"], good())
    at_work.answer("msk", tasks["msk"], with_nan())
    at_work.heard("bcn")
    progress = at_work.heard("msk")
    assert progress["past"] == []
    live.see(INFO, "RUNNING", SITES, progress)
    now[0] = 30
    live.hear("a <line> of the watcher")
    said = rows(page)
    assert said["bcn"] == "has answered"
    assert said["msk"].startswith("refused: ") and "NaN" in said["msk"]
    assert said["vienna-dias"] == "at work for 30 s"
    assert said["rosendahl"] == "not connected"
    text = page.read_text(encoding="utf-8")
    assert "Not connected: rosendahl." in text
    assert "a &lt;line&gt; of the watcher" in text
    assert "1 of 2" in text, "answered of those that are asked and not refused"

    live.see(INFO, "RUNNING", SITES, progress | {"past": [round_of(20.0)]})
    assert rows(page)["vienna-dias"] == "late: at work for 30 s, no round took longer than 20 s"
    live.end("complete")
    text = page.read_text(encoding="utf-8")
    assert "Complete." in text and 'http-equiv="refresh"' not in text


def round_of(seconds: float) -> dict[str, object]:
    return {"round": 1, "seconds": seconds, "sites": ["bcn", "msk"], "refused": {}, "score": 0.5}


def test_a_finished_round_is_kept_without_the_scores_of_single_sites() -> None:
    past = made_up_history()
    records = past_rounds(past)
    assert [record["round"] for record in records] == [record.round for record in past.rounds]
    assert {tuple(record) for record in records} == {("round", "seconds", "sites", "refused", "score")}


def test_a_command_is_told(tmp_path: Path) -> None:
    write = f"{sys.executable} -c \"import sys; open(sys.argv[1], 'w').write(sys.argv[2])\" {tmp_path / 'told'}"
    assert notify(command_of(write), "it is; done") is None
    assert (tmp_path / "told").read_text() == "it is; done"
    assert "exit code 3" in (notify(command_of(f"{sys.executable} -c 'raise SystemExit(3)'"), "x") or "")
    assert notify(["no-such-command"], "x")
    for wrong in ("", "'"):
        with raises("config.value", "--notify", kind=ConfigError):
            command_of(wrong)
