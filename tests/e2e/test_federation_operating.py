"""The coordinator's daily work: look, stop, go on from another machine, and read why something was refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedmr_med.models.model_file import load_model
from tests.helpers import REPOSITORY
from tests.helpers.chains import TWO, assert_same_model, finish, tiny_job
from tests.helpers.federation import LEAD, OTHER, SERVER, Federation, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def laptop(federation: Federation) -> str:
    """A second copy of the lead's kit, on a machine that has submitted nothing."""
    gathered = shutil.ignore_patterns("chains", "acts.jsonl", "transfer")
    shutil.copytree(federation.kit(LEAD), federation.kit("lead-laptop"), ignore=gathered)
    federation.wait_connected()
    return "lead-laptop"


def asked(federation: Federation, *command: str, kit: str = LEAD) -> dict:
    return json.loads(federation.cli("deploy", *command, "--json", kit=kit).stdout)


def test_a_chain_survives_an_abort_another_machine_and_a_restored_server(
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
    restore_from_backup(federation, tmp_path / "server.tgz")
    follow_up = asked(federation, "resume", chain, kit=laptop)["job"]
    assert finish(federation.watching(chain, kit=laptop))["jobs"] == [chain, follow_up]
    federation.cli("deploy", "download", chain, "--out", str(tmp_path / "out"), kit=laptop)
    assert (tmp_path / "out" / "checkpoint.pt").exists()
    log = json.loads(federation.run("deploy", "log", str(federation.kit(laptop)), "--json").stdout)
    assert [act["act"] for act in log["acts"]] == ["abort", "resume"]


def restore_from_backup(federation: Federation, archive: Path) -> None:
    """The drill of the runbook: back up the running server, lose its machine, unpack the archive, start."""
    kit = federation.kit(SERVER)
    backup = ["tar", "-C", str(kit.parent), "-czf", str(archive), "--exclude=server/log*", "server"]
    subprocess.run(backup, check=True, timeout=120)
    federation.kill(SERVER)
    shutil.rmtree(kit)
    subprocess.run(["tar", "-C", str(kit.parent), "-xzf", str(archive)], check=True, timeout=120)
    federation.cli("site", "check", kit=SERVER)
    federation.start(SERVER)
    federation.wait_connected()


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_resumed_from(
    federation: Federation, tmp_path: Path
) -> None:
    """Weights that are not finite made the honest sites look guilty once: their replies were refused."""
    chain = federation.submit(tiny_job(rounds=2), sites=TWO)
    page, told = tmp_path / "live.html", tmp_path / "told"
    finish(
        federation.watching(
            chain,
            "--html",
            str(page),
            "--notify",
            f"{sys.executable} -c \"import sys; open(sys.argv[1], 'w').write(sys.argv[2])\" {told}",
        )
    )
    text = page.read_text(encoding="utf-8")
    assert all(site in text for site in TWO)
    assert told.read_text() == f"The chain {chain} is complete."
    assert "Complete after 1 job" in text and 'http-equiv="refresh"' not in text
    path = federation.checkpoint(chain)
    before = load_model(path).model
    content = torch.load(path, weights_only=True)
    content["model"]["classifier.bias"][0] = float("nan")
    torch.save(content, path)

    asked(federation, "resume", chain)
    said = federation.cli("deploy", "watch", chain, code=2).stderr
    assert f"`fedmr-med deploy resume {chain} --from-previous` goes back to round 2" in said
    asked(federation, "resume", chain, "--from-previous")
    finish(federation.watching(chain))
    assert_same_model(load_model(path).model, before)


def test_a_job_short_of_hospitals_says_so_at_once_and_can_be_taken_back(federation: Federation) -> None:
    """The checked-in job is for six hospitals, of which three exist here."""
    federation.wait_connected()
    done = federation.cli("deploy", "submit", str(REPOSITORY / "jobs" / "isic_fedmr"), "--demo", "--json")
    there, missing = "rosendahl, msk, vienna-dias", "bcn, vidir-molemax, vidir-modern"
    assert f"connected 3: {there}; not connected: {missing}" in done.stderr
    chain = json.loads(done.stdout)["chain"]
    asked(federation, "abort", chain)
    assert asked(federation, "list")["chains"][-1][-1]["status"].startswith("FINISHED")


def test_a_chain_of_somebody_else_is_neither_read_nor_written(federation: Federation, tmp_path: Path) -> None:
    job = tiny_job(rounds=1)
    chain = federation.submit(job, sites=TWO)
    finish(federation.watching(chain))
    before = federation.checkpoint(chain).read_bytes()

    def go_on_as_other() -> dict:
        """Name the chain in a job of one's own, with one round more to make it write a checkpoint."""
        folder = federation.write_job(job, sites=TWO)
        options = ("--set", f"chain={chain}", "--set", "federation.rounds=2")
        federation.cli("deploy", "submit", str(folder), *options, kit=OTHER)
        mine = asked(federation, "list", kit=OTHER)["chains"]
        (last,) = (entry[-1] for entry in mine if entry[0]["chain"] == chain)
        return federation.as_person(
            f"done = until_ended(session, {last['job']!r}) | {{'log': session.server_log({last['job']!r})}}", OTHER
        )

    done = go_on_as_other()
    assert done["status"] != "FINISHED:COMPLETED"
    assert f"The chain {chain} belongs to {LEAD} of coordinator." in done["log"]
    assert federation.checkpoint(chain).read_bytes() == before
    refused = federation.cli("deploy", "download", chain, "--out", str(tmp_path / "stolen"), kit=OTHER, code=2)
    assert not (tmp_path / "stolen").exists(), refused.stderr

    federation.cli("deploy", "share", chain, OTHER, kit=SERVER)
    assert go_on_as_other()["status"] == "FINISHED:COMPLETED"
    assert federation.checkpoint(chain).read_bytes() != before
