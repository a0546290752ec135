"""A year later: a hospital's certificate is renewed while the federation runs, and its opt-out stays one."""

import json
from pathlib import Path

import pytest

from fedmr_med.deploy.manifest import certificate
from fedmr_med.files import write_text
from fedmr_med.flare.audit import AUDIT_FILE
from tests.helpers.chains import TWO, finish, tiny_job
from tests.helpers.federation import Federation, demo_site

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_a_renewed_kit_keeps_the_opt_out_of_the_old_one(federation: Federation) -> None:
    write_text(federation.folder / "sites" / "msk" / "site.yaml", demo_site("msk"))  # the coordinator would share
    policy = (federation.kit("msk") / "local" / "site.yaml").read_bytes()
    federation.kill("msk")
    old = federation.renew("msk")
    new = federation.kit("msk")
    assert serial(new) != serial(old)
    assert not (new / "local" / "site.yaml").exists()

    checks = json.loads(federation.cli("site", "check", "--json", "--no-data", kit="msk", code=1).stdout)["checks"]
    assert {check["name"] for check in checks if check["outcome"] == "fix"} == {"policy"}
    federation.cli("site", "adopt", str(old), kit="msk")
    assert (new / "local" / "site.yaml").read_bytes() == policy
    federation.cli("site", "check", "--no-data", kit="msk")

    federation.start("msk")
    federation.wait_connected()
    chain = federation.submit(tiny_job(rounds=1), sites=TWO)
    finish(federation.watching(chain))
    lines = [json.loads(line) for line in (new / AUDIT_FILE).read_text().splitlines()]
    sent = [line for line in lines if line["job"] == chain and line["task"] == "train"]
    assert len(sent) == 1
    assert "prototypes" not in sent[0]["parts"]
    assert sent[0]["metrics"] == "none"


def serial(kit: Path) -> int:
    return certificate(kit / "startup" / "client.crt").serial_number
