"""What does not start, by the kit's own start script: a site without a policy, a second server from one kit.

And what a site cannot load once it has started.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med.files import locked
from tests.helpers import REPOSITORY

pytestmark = pytest.mark.slow


# Makes what the kit's resources name, as FLARE does, and then tries a module of the lab and a site's own.
IMPORTS = """
import json
from importlib import import_module
from pathlib import Path

for component in json.loads(Path("local/resources.json").read_text())["components"]:
    if component.get("path", "").startswith("fedmr_med."):
        module, _, name = component["path"].rpartition(".")
        getattr(import_module(module), name)(**component.get("args", {}))
for module in ("fedmr_med.flare.executor", "fedmr_med.lab", "fedmr_med.lab.audit.attacks"):
    try:
        import_module(module)
        print(module, "loads")
    except ModuleNotFoundError as e:
        print(module, "refused:", e)
from fedmr_med.data import READERS
from fedmr_med.errors import ConfigError
try:
    READERS.get("benchmark", "data.source")
except ConfigError as e:
    print(e)
"""


def refusal(kit: Path, *paths: Path) -> str:
    """Run a kit's start script in the foreground until it gives up, and return what it says."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": ":".join(map(str, (*paths, REPOSITORY)))}
    command = ["bash", str(kit / "startup" / "sub_start.sh"), "--once"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_site_without_a_policy_of_its_own(kits: Path) -> None:
    (kits / "msk" / "local" / "site.yaml").unlink()
    said = refusal(kits / "msk")
    assert "No site.yaml for site 'msk'" in said
    assert "site adopt" in said


def test_a_site_whose_policy_cannot_be_read(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text(path.read_text().replace("share_metrics", "share_metric"))
    assert "policy.share_metric: is not a known key" in refusal(kits / "msk")


def test_a_second_server_from_the_same_kit(kits: Path) -> None:
    with locked(kits / "server" / "server.lock", patience=0):
        assert "A server runs from" in refusal(kits / "server")


def test_a_site_cannot_load_the_lab(kits: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=kits / "msk",
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loads, lab, attacks, reader = done.stdout.splitlines()
    assert loads == "fedmr_med.flare.executor loads"
    assert lab == "fedmr_med.lab refused: fedmr_med.lab is not for the processes of a hospital"
    assert attacks.startswith("fedmr_med.lab.audit.attacks refused: ")
    assert "fedmr_med.lab is not for the processes of a hospital" in reader


def test_a_site_that_has_loaded_the_lab_does_not_start(kits: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import fedmr_med.lab\n")
    assert "has loaded fedmr_med.lab" in refusal(kits / "msk", tmp_path)
