"""Secure sums on a provisioned federation: signed keys, real tasks, and a hospital that dies in the middle."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.flare.audit import AUDIT_FILE
from fedmr_med.models.model_file import load_model
from fedmr_med.runner import Federation as InProcess
from fedmr_med.sites import load_site
from tests.helpers.federation import OPTED_OUT, Federation, demo_site, running, wait_for
from tests.helpers.small import small_job

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]

VICTIM = "rosendahl"
JOB = small_job(
    "fedmr",
    name="tiny_secure",
    task={"transform": "plain", "image_size": 24},
    federation={"rounds": 1, "min_sites": 3, "grace_seconds": 3, "timeout_seconds": 600, "secure": "all"},
)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server and four hospitals, the fewest of which one can be lost; msk has opted out."""
    names = ("vidir-molemax", VICTIM, "vienna-dias")
    sites = {"msk": demo_site("msk", OPTED_OUT)} | {name: demo_site(name) for name in names}
    with running(tmp_path_factory.mktemp("secure"), sites) as federation:
        yield federation


def test_a_hospital_killed_between_masking_and_unmasking_is_in_the_total(four: Federation, tmp_path: Path) -> None:
    four.arm(VICTIM, "secure-unmask")
    chain = four.submit(JOB)
    four.wait_reached(VICTIM, "secure-unmask")
    four.kill(VICTIM)
    four.release(VICTIM, "secure-unmask")
    results = four.checkpoint(chain).with_name("results.json")
    wait_for(results.exists, "the round is closed")
    wait_for(four.checkpoint(chain).exists, "the checkpoint is written")
    history = read_result(results, RunResults).runs[0].history
    assert history is not None
    record = history.rounds[0].secure
    assert record is not None
    assert record.error is None
    assert record.sites == tuple(sorted(four.sites)), "its vector had arrived, and three of four can open the total"
    configs = {name: load_site(four.kit(name) / "local" / "site.yaml") for name in four.sites}
    expected = InProcess(JOB, configs, tmp_path).run()
    assert history.evaluations[0].pooled == expected.history.evaluations[0].pooled
    model = load_model(four.checkpoint(chain)).model
    assert all(np.array_equal(model[name], expected.model[name]) for name in model)


def test_what_left_each_hospital_is_written_down_step_by_step(four: Federation) -> None:
    for name in set(four.sites) - {VICTIM}:
        lines = [json.loads(line) for line in (four.kit(name) / AUDIT_FILE).read_text().splitlines()]
        steps = [next(iter(line["parts"])) for line in lines if line["task"] == "secure" and line["code"] == "OK"]
        assert steps[:5] == ["keys", "offer", "mask", "confirm", "unmask"]
        trained = next(line for line in lines if line["task"] == "train")
        assert "prototypes" not in trained["parts"]
        assert trained["bytes"] == 0, "the model is in the masked vector alone"
        assert trained["metrics"] == "none"
        shapes = [line["parts"]["mask"]["shapes"]["vector"] for line in lines if "mask" in line["parts"]]
        assert shapes[0][0] == "uint64"
