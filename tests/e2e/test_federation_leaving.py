"""A hospital leaves a chain on a provisioned federation: the others' head, to the digit, and lines at both ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.models.model_file import load_model, sha256_of
from fedmr_med.runner import Federation as InProcess
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.state import BIAS, WEIGHT
from fedmr_med.sites import load_site
from tests.helpers.chains import finish
from tests.helpers.federation import LEAD, OPTED_OUT, Federation, demo_site, running
from tests.helpers.small import small_job

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]

LEAVES = "vienna-dias"
OTHERS = ("msk", "rosendahl", "vidir-molemax")
PLAIN = small_job(
    "fedavg",
    name="leaving_plain",
    task={"transform": "plain", "image_size": 24},
    federation={"rounds": 0, "min_sites": 3, "grace_seconds": 3, "timeout_seconds": 600},
    head={"exchange": "last", "keep": True},
)
SECURE = PLAIN.override({"name": "leaving_secure", "federation": {"secure": "statistics"}})


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server and four hospitals; msk has opted out."""
    sites = {name: demo_site(name, *([OPTED_OUT] if name == "msk" else [])) for name in (*OTHERS, LEAVES)}
    with running(tmp_path_factory.mktemp("leaving"), sites) as federation:
        yield federation


def head_without(four: Federation, job: JobConfig, folder: Path) -> dict[str, np.ndarray]:
    """Return the head of a federation that never had the hospital."""
    configs = {name: load_site(four.kit(name) / "local" / "site.yaml") for name in OTHERS}
    return dict(InProcess(job, configs, folder).run().head)


def download(four: Federation, chain: str, out: Path) -> Path:
    four.cli("deploy", "download", chain, "--out", str(out))
    return out / BEST_MODEL


def assert_left(four: Federation, job: JobConfig, chain: str, first: Path, folder: Path) -> None:
    """Look at the model, its lineage, the server's files and the journals."""
    model = download(four, chain, folder / "after")
    expected, made = head_without(four, job, folder / "never"), load_model(model)
    for name in (WEIGHT, BIAS):
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(made.model[name], expected[name], rtol=0, atol=1e-9 * scale)
    assert [(left.site, left.models, left.retrain_from) for left in made.lineage] == [
        (LEAVES, (sha256_of(first),), None)
    ]
    history = read_result(model.with_name("results.json"), RunResults).runs[0].history
    assert history is not None
    assert history.head is not None
    assert LEAVES not in history.head.sites
    assert history.head.evaluation is not None
    assert LEAVES not in history.head.evaluation.sites
    assert history.withdrawn == made.lineage
    kept = {path.stem for path in (four.checkpoint(chain).parent / "head").iterdir()}
    assert kept == set((history.head.kept or {}).values())
    assert sha256_of(model) != sha256_of(first)
    assert [act["site"] for act in acts(four) if act["act"] == "withdraw" and act["chain"] == chain][-1] == LEAVES
    audit = json.loads(four.cli("site", "audit", "--json", kit=LEAVES).stdout)
    assert chain in audit["left"]
    assert f"left the chain {chain}" in four.cli("site", "audit", kit=LEAVES).stdout
    events = [json.loads(line) for line in (four.checkpoint(chain).with_name("events.jsonl")).read_text().splitlines()]
    assert [event["site"] for event in events if event["event"] == "withdraw"] == [LEAVES]


def acts(four: Federation) -> list[dict[str, Any]]:
    return list(json.loads(four.run("deploy", "log", str(four.kit(LEAD)), "--json").stdout)["acts"])


def answers(four: Federation) -> list[dict[str, Any]]:
    return list(json.loads(four.cli("site", "audit", "--json", kit=LEAVES).stdout)["replies"])


def test_a_hospital_leaves_a_chain_whose_statistics_the_server_sees(four: Federation, tmp_path: Path) -> None:
    chain = four.submit(PLAIN)
    finish(four.watching(chain))
    first = download(four, chain, tmp_path / "before")
    asked = {name: len(audit(four, name, "head")) for name in OTHERS}
    four.cli("site", "withdraw", chain, kit=LEAVES)
    before = len(answers(four))
    four.cli("deploy", "withdraw", chain, LEAVES, "--watch")
    assert_left(four, PLAIN, chain, first, tmp_path)
    assert {name: len(audit(four, name, "head")) for name in OTHERS} == asked, "nobody was asked for statistics again"
    assert len(answers(four)) == before, "and the one that left for nothing at all"
    bundle = tmp_path / "bundle"
    four.run("export", str(tmp_path / "after" / BEST_MODEL), "--out", str(bundle))
    lineage = json.loads((bundle / "configs" / "metadata.json").read_text())["lineage"]
    assert [(left["site"], left["models"]) for left in lineage] == [(LEAVES, [sha256_of(first)])]
    assert sha256_of(first) in (bundle / "docs" / "README.md").read_text()
    four.cli("deploy", "dossier", chain, "--out", str(tmp_path / "dossier"))
    digests = json.loads((tmp_path / "dossier" / "digests.json").read_text())
    assert digests["model"] == sha256_of(tmp_path / "after" / BEST_MODEL)
    told = json.loads((tmp_path / "dossier" / "coordinator.json").read_text())["acts"]
    assert [act["act"] for act in told] == ["submit", "withdraw"]
    assert f"Who left | {LEAVES}" in (tmp_path / "dossier" / "data-protection.md").read_text()
    four.cli("deploy", "resume", chain)
    finish(four.watching(chain))
    assert_left(four, PLAIN, chain, first, tmp_path / "resumed")


def audit(four: Federation, name: str, task: str) -> list[dict[str, Any]]:
    lines = json.loads(four.cli("site", "audit", "--json", kit=name).stdout)["replies"]
    return [line for line in lines if line["task"] == task]


def test_a_hospital_takes_its_part_out_of_a_secure_total(four: Federation, tmp_path: Path) -> None:
    chain = four.submit(SECURE)
    finish(four.watching(chain))
    first = download(four, chain, tmp_path / "before")
    kept = sorted((four.checkpoint(chain).parent / "head").iterdir())
    refused = four.cli("deploy", "withdraw", chain, LEAVES, "--watch", code=2)
    assert "fedmr-med site withdraw" in refused.stderr, "nobody there has said so"
    assert sorted((four.checkpoint(chain).parent / "head").iterdir()) == kept
    four.cli("site", "withdraw", chain, kit=LEAVES)
    for name in OTHERS:
        four.cli("site", "cohort", "accept", *OTHERS, kit=name)
    four.cli("deploy", "withdraw", chain, LEAVES, "--watch")
    assert_left(four, SECURE, chain, first, tmp_path)
    last = answers(four)[-1]
    assert list(last["parts"]) == ["leave"], "its part of the total, once, is all that left"
