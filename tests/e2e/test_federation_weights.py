"""A lead's job with chosen weights on a provisioned federation: refused everywhere until people have approved it."""

import json
from pathlib import Path

import pytest
import torch

from fedmr_med.privacy import refusals
from fedmr_med.server.state import with_weights
from tests.helpers.chains import finish
from tests.helpers.federation import Federation
from tests.helpers.one_patient import INPUTS, attack_job, crafted

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_the_one_patient_job_is_refused_at_every_hospital_until_people_there_approve_it(
    federation: Federation, tmp_path: Path
) -> None:
    federation.wait_connected()
    weights, job = tmp_path / "weights.pt", attack_job("one_patient", 64)
    torch.manual_seed(0)
    torch.save(crafted(torch.randn(64, INPUTS) / 100, torch.zeros(64)).state_dict(), weights)
    digest = with_weights(job, weights).model.weights
    chosen = job.model_copy(update={"chain": None})
    chain = federation.submit(chosen, initial_model=weights)
    said = federation.cli("deploy", "watch", chain, code=2).stderr
    for name in federation.sites:
        assert f"{name}: {refusals.in_words(refusals.WEIGHTS)}" in said
        line = audit(federation, name)[-1]
        assert (line["code"], line["bytes"]) == (refusals.WEIGHTS, 0)
        assert digest in line["reason"]
        assert not list(federation.kit(name).rglob("initial_model.pt")), "weights go to the server alone"
        assert digest in federation.cli("site", "jobs", kit=name).stdout
        federation.cli("site", "jobs", "--approve", chain, kit=name)

    again = federation.submit(chosen, initial_model=weights)
    finish(federation.watching(again))
    for name in federation.sites:
        left = [line for line in audit(federation, name) if line["job"] == again]
        assert {(line["code"], line["task"]) for line in left} == {("OK", "head"), ("OK", "validate")}
        assert left[0]["weights"] == digest
        said = federation.cli("site", "audit", kit=name).stdout
        assert f"of weights with SHA-256 {digest}" in said
        shared = "kept (counts, sums, moments) of" in said.split(f"job {again}")[1]
        assert shared == (name != "msk"), "msk shares no statistics, whatever was approved"


def audit(federation: Federation, name: str) -> list[dict]:
    return list(json.loads(federation.cli("site", "audit", "--json", kit=name).stdout)["replies"])
