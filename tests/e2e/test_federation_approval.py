"""A hospital that wants a person to look first: the job waits there, and the coordinator reads why."""

import json

import pytest

from tests.helpers.chains import finish, history, tiny_job
from tests.helpers.federation import Federation, wait_for

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def careful(federation: Federation) -> str:
    """A hospital whose people approve new settings."""
    federation.wait_connected()
    name = "rosendahl"
    federation.cli("site", "policy", "set", "--approve", "new_settings", "--approval-minutes", "10", kit=name)
    return name


@pytest.mark.nightly
def test_a_job_that_is_refused_tells_the_coordinator_in_words(federation: Federation, careful: str) -> None:
    federation.cli("site", "policy", "set", "--approval-minutes", "0", kit=careful)
    chain = federation.submit(tiny_job(rounds=1), sites=(careful, "vienna-dias"))
    said = federation.cli("deploy", "watch", chain, code=2).stderr
    assert f"{careful}: it has not approved these settings" in said
    federation.cli("site", "policy", "set", "--approval-minutes", "10", kit=careful)


@pytest.mark.nightly
def test_a_job_waits_until_a_person_at_the_hospital_approves_it(federation: Federation, careful: str) -> None:
    def asked() -> list[dict]:
        return json.loads(federation.cli("site", "jobs", "--json", kit=careful).stdout)["jobs"]

    chain = federation.submit(tiny_job(rounds=1, sites=1), sites=(careful,))
    wait_for(lambda: any(job["chain"] == chain for job in asked()), "the hospital is asked", seconds=300)
    assert {job["chain"]: job["state"] for job in asked()}[chain] == "waits for a decision"
    federation.cli("site", "jobs", "--approve", chain, kit=careful)
    finish(federation.watching(chain))
    assert careful in history(federation, chain)[0]["sites"]

    again = federation.submit(tiny_job(rounds=1, sites=1), sites=(careful,))
    finish(federation.watching(again))
    assert careful in history(federation, again)[0]["sites"], "approved settings need nobody's approval again"
    federation.cli("site", "policy", "set", "--approve", "always", kit=careful)
