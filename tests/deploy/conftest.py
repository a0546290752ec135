"""Real kits, provisioned once."""

import shutil
from pathlib import Path

import pytest

from fedmr_med.deploy.provision import provision
from fedmr_med.files import write_text
from tests.helpers.federation import settle

__all__ = ["settle"]

PROJECT = """
api_version: 3
name: small
participants:
  - {name: server, type: server, org: coordinator, fed_learn_port: 8002, default_host: localhost}
  - {name: msk, type: client, org: msk}
  - {name: lead@example.org, type: admin, org: coordinator, role: lead}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {template_file: [master_template.yml]}
  - path: fedmr_med.deploy.builder.LockedKitBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config}
  - path: nvflare.lighter.impl.cert.CertBuilder
"""
SITE = """# The hospital's own file.
data:
  source: demo
  center: 4
policy:
  # Prototypes of these classes may leave.
  share_prototypes: true
  min_class_count: 11
  share_metrics: per_class
"""


@pytest.fixture(scope="session")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kits of a server, one hospital (it has a policy) and a lead; not to be changed."""
    folder = tmp_path_factory.mktemp("provisioned")
    write_text(folder / "project.yml", PROJECT)
    write_text(folder / "sites" / "msk" / "site.yaml", SITE)
    kits = provision(folder / "project.yml", folder / "workspace", folder / "sites")
    settle(kits / "msk", SITE)
    return kits


@pytest.fixture
def kits(provisioned: Path, tmp_path: Path) -> Path:
    """A copy of the kits, to be changed."""
    return Path(shutil.copytree(provisioned, tmp_path / "kits"))
