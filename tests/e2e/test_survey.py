"""A survey by the command line and FLARE's simulator: the same as in one process, and no model is there."""

import json
from pathlib import Path

import pytest

from fedmr_med.runner.federation import Federation
from tests.helpers.command_line import run
from tests.helpers.simulator import simulate
from tests.helpers.surveyed import CLASSES, pictures, survey, write_hospitals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

POLICY = "policy: {share_survey: images, share_prototypes: true}\n"


@pytest.mark.nightly
def test_hospitals_are_asked_what_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = {"FEDMR_MED_CACHE": str(tmp_path / "cache")}
    monkeypatch.setenv(*next(iter(cache.items())))
    write_hospitals(tmp_path / "sites", pictures())
    for site in (tmp_path / "sites").glob("*/site.yaml"):
        site.write_text(site.read_text() + POLICY)
    arguments = ["--survey", "--name", "before", "--sites", str(tmp_path / "sites"), "--classes", ",".join(CLASSES)]
    settings = ["--set", "task.image_size=32", "--set", "federation.min_sites=3", "--out", str(tmp_path / "jobs")]
    assert run(monkeypatch, "jobs", "new", *arguments, *settings) == 0
    done = simulate(tmp_path / "jobs" / "before", tmp_path / "run", environment=cache)
    assert done.exit_code == 0, done.output[-3000:]
    assert "what the hospitals hold" in done.output and "all together" in done.output

    told = json.loads((done.chain / "results.json").read_text())["runs"][0]["history"]["survey"]
    job, sites = survey(tmp_path / "sites", {}, **{"task.subgroups": {}})
    record = Federation(job, sites, tmp_path / "here").run().history.survey
    assert record is not None and told == record.model_dump(mode="json")
    assert not (done.chain / "best_model.pt").exists()
    assert "c is at one hospital only: mitte" in (done.workspace / "report.html").read_text()
