"""What does not start, by the kit's own start script: a site without a policy, a second server from one kit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med.files import locked
from tests.helpers import REPOSITORY

pytestmark = pytest.mark.slow


def start(kit: Path) -> subprocess.CompletedProcess[str]:
    """Run a kit's start script in the foreground until it gives up."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(REPOSITORY)}
    command = ["bash", str(kit / "startup" / "sub_start.sh"), "--once"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_site_without_a_policy_of_its_own(kits: Path) -> None:
    (kits / "msk" / "local" / "site.yaml").unlink()
    done = start(kits / "msk")
    assert done.returncode == 1
    assert "No site.yaml for site 'msk'" in done.stderr
    assert "site adopt" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_site_whose_policy_cannot_be_read(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text(path.read_text().replace("share_metrics", "share_metric"))
    done = start(kits / "msk")
    assert done.returncode == 1
    assert "policy.share_metric: is not a known key" in done.stderr


def test_a_second_server_from_the_same_kit(kits: Path) -> None:
    with locked(kits / "server" / "server.lock", patience=0):
        done = start(kits / "server")
    assert done.returncode == 1
    assert "A server runs from" in done.stderr
