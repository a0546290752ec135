"""Two of three hospitals reach the server through a relay: one more process with a kit of its own, over loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.models.model_file import load_model
from tests.helpers.chains import assert_same_model, finish, in_process, tiny_job
from tests.helpers.federation import RELAY, Federation, demo_site, reachable, running, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]

SITES, BEHIND = ("msk", "rosendahl", "vienna-dias"), ("msk", "rosendahl")


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with running(tmp_path_factory.mktemp("relayed"), {name: demo_site(name) for name in SITES}, BEHIND) as federation:
        yield federation


def checks(federation: Federation, kit: str) -> dict[str, str]:
    """Return the lines of a `site check` without anything to fix."""
    found = json.loads(federation.cli("site", "check", "--no-data", "--json", kit=kit).stdout)
    return {check["name"]: check["message"] for check in found["checks"]}


def test_a_job_runs_through_a_relay_that_dies_on_the_way(relayed: Federation, tmp_path: Path) -> None:
    relayed.wait_connected()
    assert "answers with the certificate of server" in checks(relayed, RELAY)["connection"]
    assert checks(relayed, RELAY)["client"].startswith("running")
    assert f"answers with the certificate of {RELAY}" in checks(relayed, "msk")["connection"]
    assert "answers with the certificate of server" in checks(relayed, "vienna-dias")["connection"]
    assert json.loads(relayed.cli("site", "health", "--json", kit=RELAY).stdout)["ok"]

    job = tiny_job(sites=3)
    relayed.arm("msk", "train-2")
    chain = relayed.submit(job)
    watcher = relayed.watching(chain, "--resume")
    relayed.wait_reached("msk", "train-2")
    relayed.kill(RELAY)
    relayed.start(RELAY)
    wait_for(lambda: reachable(relayed.kit("msk")), "the relay is back")
    relayed.release("msk", "train-2")
    finish(watcher)

    path = relayed.checkpoint(chain)
    assert_same_model(load_model(path).model, in_process(relayed, job, tmp_path, SITES))
    (run,) = read_result(path.with_name("results.json"), RunResults).runs
    assert run.history is not None
    assert all(set(record.sites) == set(SITES) for record in run.history.rounds)
