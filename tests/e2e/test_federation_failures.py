"""Kill -9 of server, client and job process: the chain still ends with a complete model."""

from pathlib import Path

import psutil
import pytest

from fedmr_med.flare.audit import AUDIT_FILE
from fedmr_med.models.model_file import load_model
from tests.helpers.chains import TWO, assert_same_model, finish, history, in_process, tiny_job
from tests.helpers.federation import SERVER, Federation, kill_process, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.timeout(1500)]


PHASES = [(SERVER, "start"), ("vienna-dias", "train-1"), (SERVER, "aggregate-2"), (SERVER, "checkpoint-2")]


@pytest.mark.parametrize(
    "phases", [PHASES[-1:], pytest.param(PHASES, marks=pytest.mark.nightly)], ids=["last phase", "every phase"]
)
def test_the_server_killed_loses_nothing(federation: Federation, phases: list[tuple[str, str]], tmp_path: Path) -> None:
    """FedDyn keeps state at the hospitals too, so a round that counts twice or not at all would show."""
    job = tiny_job("feddyn", rounds=3)
    federation.arm(*phases[0])
    chain = federation.submit(job, sites=TWO)
    watcher = federation.watching(chain, "--resume")
    for number, (where, point) in enumerate(phases):
        federation.wait_reached(where, point)
        complete = load_round(federation, chain)
        federation.kill(SERVER)
        federation.release(where, point)
        assert load_round(federation, chain) == complete, "a kill leaves the checkpoint as it was"
        assert complete == (1 if point.endswith("-2") else 0)
        if number + 1 < len(phases):
            federation.arm(*phases[number + 1])
        federation.start(SERVER)
    watched = finish(watcher)
    assert len(watched["jobs"]) == len(phases) + 1
    assert [record["round"] for record in history(federation, chain)] == [1, 2, 3]
    expected = in_process(federation, job, tmp_path, TWO)
    assert_same_model(load_model(federation.checkpoint(chain)).model, expected)


def load_round(federation: Federation, chain: str) -> int:
    """Return how many rounds are safe on the server's disk."""
    path = federation.checkpoint(chain)
    return len(history(federation, chain)) if path.exists() else 0


@pytest.mark.nightly
def test_the_server_killed_under_fedmr_gives_the_model_of_an_uninterrupted_run(
    federation: Federation, tmp_path: Path
) -> None:
    job = tiny_job("fedmr")
    federation.arm(SERVER, "aggregate-2")
    chain = federation.submit(job, sites=TWO)
    watcher = federation.watching(chain, "--resume")
    federation.wait_reached(SERVER, "aggregate-2")
    federation.kill(SERVER)
    federation.release(SERVER, "aggregate-2")
    federation.start(SERVER)
    assert len(finish(watcher)["jobs"]) == 2
    expected = in_process(federation, job, tmp_path, TWO)
    assert_same_model(load_model(federation.checkpoint(chain)).model, expected)


@pytest.mark.nightly
def test_a_hospital_that_hangs_answers_late_dies_and_comes_back(federation: Federation) -> None:
    """Two of three replies make a round. The third hospital is in trouble in rounds 1 and 3."""
    troubled = "rosendahl"
    for site, point in [
        (troubled, "train-1"),
        *((site, "train-2") for site in federation.sites),
        (troubled, "train-3"),
        ("vienna-dias", "train-4"),
    ]:
        federation.arm(site, point)
    chain = federation.submit(tiny_job("fedmr", rounds=4, sites=2))
    watcher = federation.watching(chain, "--resume")

    federation.wait_reached(troubled, "train-1")
    federation.wait_reached("msk", "train-2")
    assert set(history(federation, chain)[0]["sites"]) == set(TWO), "round 1 closed while the hospital hung"

    federation.release(troubled, "train-1")  # its answer to round 1 is late now
    federation.wait_reached(troubled, "train-2")
    sent = len(audit(federation, troubled))
    federation.release(troubled, "train-2")
    wait_for(lambda: len(audit(federation, troubled)) > sent, "the hospital answers round 2")
    for site in TWO:
        federation.release(site, "train-2")

    federation.wait_reached(troubled, "train-3")
    federation.kill(troubled)
    federation.release(troubled, "train-3")
    federation.wait_reached("vienna-dias", "train-4")
    logins = federation.logins(troubled)
    federation.start(troubled)
    wait_for(lambda: federation.logins(troubled) > logins, "the hospital is back")
    (process,) = federation.job_processes("vienna-dias")
    kill_process(process)  # FLARE ends the job, so there is a follow-up
    federation.release("vienna-dias", "train-4")

    assert len(finish(watcher)["jobs"]) == 2
    rounds = history(federation, chain)
    assert troubled in rounds[1]["sites"], "it takes part again in the same job after it hung"
    assert set(rounds[2]["sites"]) == set(TWO), "round 3 closed without the dead hospital"
    assert troubled in rounds[3]["sites"], "it takes part again in the follow-up after it died"


def audit(federation: Federation, site: str) -> list[str]:
    path = federation.kit(site) / AUDIT_FILE
    return path.read_text().splitlines() if path.exists() else []


def test_no_process_is_left_of_jobs_that_have_ended(federation: Federation) -> None:
    def left() -> list[int]:
        return [
            pid
            for name in (SERVER, *federation.sites)
            for pid in federation.job_processes(name)
            if psutil.pid_exists(pid)
        ]

    wait_for(lambda: not left(), "all job processes have ended")
