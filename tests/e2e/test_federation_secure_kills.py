"""Kill -9 of the server, and of a hospital, at each step of a secure sum.

The chain goes on to the total of the whole cohort, bit for bit that of a run without kills, or it stops with an exit
code and the name of who is missing, and goes on when that hospital is back.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import SecureRecord
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.models.model_file import load_model
from fedmr_med.runner import Federation as InProcess
from fedmr_med.server.state import GlobalState
from fedmr_med.sites import load_site
from fedmr_med.wire.secure import ASK_CONFIRMED, ASK_KEYS, ASK_MASKED, ASK_OFFER, ASK_SHARES
from tests.helpers.chains import assert_same_model, finish
from tests.helpers.federation import SERVER, Federation, demo_site, running, wait_for
from tests.helpers.small import small_job

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1800)]

VICTIM = "rosendahl"
SITES = ("msk", VICTIM, "vidir-molemax", "vienna-dias")
STEPS = (ASK_KEYS, ASK_OFFER, ASK_MASKED, ASK_CONFIRMED, ASK_SHARES)
OPENED_WITHOUT = (ASK_CONFIRMED, ASK_SHARES)
"""Steps before which a hospital's vector has arrived: three of four can open the total then."""
JOB = small_job(
    "fedmr",
    name="tiny_killed",
    task={"transform": "plain", "image_size": 24},
    federation={"rounds": 1, "min_sites": 3, "grace_seconds": 20, "timeout_seconds": 600, "secure": "all"},
)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with running(tmp_path_factory.mktemp("kills"), {name: demo_site(name) for name in SITES}) as federation:
        yield federation


@pytest.fixture(scope="module")
def expected(four: Federation, tmp_path_factory: pytest.TempPathFactory) -> GlobalState:
    torch.set_num_threads(1)
    configs = {name: load_site(four.kit(name) / "local" / "site.yaml") for name in SITES}
    return InProcess(JOB, configs, tmp_path_factory.mktemp("expected")).run()


@pytest.fixture(scope="module", autouse=True)
def cohort(four: Federation) -> None:
    """A first chain without kills, whose total makes the four hospitals the cohort."""
    four.wait_connected()
    finish(four.watching(four.submit(JOB)))


@pytest.mark.parametrize("step", STEPS)
def test_the_server_killed_in_a_secure_sum_resumes_with_the_whole_cohort(
    four: Federation, expected: GlobalState, step: str
) -> None:
    four.wait_connected()
    four.arm(VICTIM, f"secure-{step}")
    chain = four.submit(JOB)
    watcher = four.watching(chain, "--resume")
    four.wait_reached(VICTIM, f"secure-{step}")
    four.kill(SERVER)
    four.release(VICTIM, f"secure-{step}")
    four.start(SERVER)
    finish(watcher)
    check(four, chain, expected)


@pytest.mark.parametrize("step", STEPS)
def test_a_hospital_killed_in_a_secure_sum_is_in_the_total_or_is_named(
    four: Federation, expected: GlobalState, step: str
) -> None:
    four.wait_connected()
    four.arm(VICTIM, f"secure-{step}")
    chain = four.submit(JOB)
    watcher = four.watching(chain)
    four.wait_reached(VICTIM, f"secure-{step}")
    four.kill(VICTIM)
    four.release(VICTIM, f"secure-{step}")
    logins = four.logins(VICTIM)
    if step in OPENED_WITHOUT:
        results = four.checkpoint(chain).with_name("results.json")
        wait_for(results.exists, "the round is closed without the hospital")
        (record,) = secure_records(results)
        assert record.error is None
        assert record.sites == tuple(sorted(SITES)), "its vector had arrived"
    code = watcher.wait(timeout=600)
    said = four.watched(chain)
    assert code != 0, said  # the scores of the last model lack the hospital as well
    assert f"Missing: {VICTIM}." in said
    four.start(VICTIM)
    wait_for(lambda: four.logins(VICTIM) > logins, "the hospital is back")
    four.wait_connected()
    finish(four.watching(chain, "--resume"))
    check(four, chain, expected)


def check(federation: Federation, chain: str, expected: GlobalState) -> None:
    """Compare with a run without kills: the model, and the scores of all four."""
    path = federation.checkpoint(chain)
    assert_same_model(load_model(path).model, expected.leaving().model)
    results = path.with_name("results.json")
    assert [record.sites for record in secure_records(results)] == [tuple(sorted(SITES))]
    evaluations = history(results).evaluations
    assert [each.pooled for each in evaluations] == [each.pooled for each in expected.history.evaluations]


def history(results: Path) -> History:
    found = read_result(results, RunResults).runs[0].history
    assert found is not None
    return found


def secure_records(results: Path) -> list[SecureRecord]:
    return [record.secure for record in history(results).rounds if record.secure is not None]
