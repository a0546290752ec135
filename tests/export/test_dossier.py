"""The evidence folder of a chain: complete, with the digest of every file, and open where nobody has answered."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from fedmr_med.export.dossier import TRIPOD, write_dossier
from fedmr_med.jobs.folder import write_job
from fedmr_med.runner import Federation
from fedmr_med.server.chain import BEST_MODEL, Chain
from tests.helpers.errors import raises
from tests.helpers.small import small_job
from tests.helpers.transports import demo_sites

JOB = small_job("fedavg", federation={"rounds": 0, "min_sites": 2}, head={"exchange": "last", "keep": True})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a chain of two hospitals, of which one has handed over its approvals."""
    results, source = tmp_path / "results", tmp_path / "submitted" / JOB.name
    state = Federation(JOB, demo_sites("bcn", "msk"), results).run()
    Chain(results, JOB).write_results(state)
    write_job(JOB, source, dict.fromkeys(("bcn", "msk")))
    (tmp_path / "msk.json").write_text("{}")
    acts = [{"act": "submit", "chain": "c1", "by": "lead"}]
    write_dossier(source, results, tmp_path / "out", chain="c1", acts=acts, approvals=[tmp_path / "msk.json"])
    return tmp_path / "out"


def test_it_holds_job_card_report_and_packages_with_the_digest_of_every_file(folder: Path) -> None:
    digests = json.loads((folder / "digests.json").read_text())
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert set(digests["files"]) == there - {"digests.json"}
    assert {"report.html", "docs/README.md", "job/app/fedmr.yaml", "approvals/msk.json", "sbom.json"} <= there
    for name, digest in digests["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    model = folder.parent / "results" / BEST_MODEL
    assert digests["model"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert digests["job"] == JOB.digest()
    assert json.loads((folder / "coordinator.json").read_text())["acts"][0]["act"] == "submit"
    packages = {c["name"].lower(): c["version"] for c in json.loads((folder / "sbom.json").read_text())["components"]}
    assert packages["numpy"] == version("numpy")


def test_what_nobody_has_answered_is_open(folder: Path) -> None:
    items = (folder / "tripod-ai.md").read_text()
    assert [number for number, _, _ in TRIPOD] == [str(number) for number in range(1, 28)]
    assert "| 17 | Ethical approval | **open** |" in items
    for _, _, where in TRIPOD:
        for name in ("docs/README.md", "report.html", "sbom.json", "digests.json", "coordinator.json"):
            assert where is None or name not in where or (folder / name).exists()
    page = (folder / "data-protection.md").read_text()
    assert "bcn, msk" in page
    assert "keeps each site's statistics" in page, "in the words that its steward reads"
    assert "Legal basis, consent, period of storage | **open**" in page
    assert "approvals/: msk.json" in page


def test_a_chain_without_a_model_has_no_evidence(tmp_path: Path) -> None:
    with raises("chain.no-model"):
        write_dossier(tmp_path, tmp_path, tmp_path / "out", chain="c1")
