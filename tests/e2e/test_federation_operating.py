"""The coordinator's daily work: look, stop, go on from another machine, and read why something was refused."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.test_federation import TWO, finish, tiny_job
from tests.helpers import REPOSITORY
from tests.helpers.federation import LEAD, Federation, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def laptop(federation: Federation) -> str:
    """A second copy of the lead's kit, on a machine that has submitted nothing."""
    gathered = shutil.ignore_patterns("chains", "acts.jsonl", "transfer")
    shutil.copytree(federation.kit(LEAD), federation.kit("lead-laptop"), ignore=gathered)
    federation.wait_connected()
    return "lead-laptop"


def asked(federation: Federation, *command: str, kit: str = LEAD) -> dict:
    return json.loads(federation.cli("deploy", *command, "--json", kit=kit).stdout)


def test_a_chain_is_watched_stopped_resumed_and_fetched_from_another_machine(
    federation: Federation, laptop: str, tmp_path: Path
) -> None:
    federation.arm("msk", "train-2")
    chain = federation.submit(tiny_job(rounds=2), sites=TWO)
    federation.wait_reached("msk", "train-2")
    status = asked(federation, "status", kit=laptop)
    assert set(status["hospitals"]) == set(federation.sites)
    (running,) = (job for job in status["running"] if job["chain"] == chain)
    assert (running["owner"], running["status"]) == (LEAD, "RUNNING")
    assert running["progress"]["round"] == 1
    assert f"certificate   {LEAD} until" in federation.cli("deploy", "status", kit=laptop).stdout

    assert asked(federation, "abort", chain, kit=laptop)["job"] == chain
    federation.release("msk", "train-2")
    wait_for(lambda: asked(federation, "list", kit=laptop)["chains"][-1][-1]["status"].startswith("FINISHED"), "abort")
    follow_up = asked(federation, "resume", chain, kit=laptop)["job"]
    assert finish(federation.watching(chain, kit=laptop))["jobs"] == [chain, follow_up]
    federation.cli("deploy", "download", chain, "--out", str(tmp_path / "out"), kit=laptop)
    assert (tmp_path / "out" / "checkpoint.pt").exists()
    log = json.loads(federation.run("deploy", "log", str(federation.kit(laptop)), "--json").stdout)
    assert [act["act"] for act in log["acts"]] == ["abort", "resume"]


def test_a_job_short_of_hospitals_says_so_at_once_and_can_be_taken_back(federation: Federation) -> None:
    """The checked-in job is for six hospitals, of which three exist here."""
    federation.wait_connected()
    done = federation.cli("deploy", "submit", str(REPOSITORY / "jobs" / "isic_fedmr"), "--demo", "--json")
    there, missing = "rosendahl, msk, vienna-dias", "bcn, vidir-molemax, vidir-modern"
    assert f"connected 3: {there}; not connected: {missing}" in done.stderr
    chain = json.loads(done.stdout)["chain"]
    asked(federation, "abort", chain)
    assert asked(federation, "list")["chains"][-1][-1]["status"].startswith("FINISHED")
