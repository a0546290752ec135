"""What the server of a simulation learns from the settings that its job carries."""

from pathlib import Path

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants

from fedmr_med.files import write_text
from fedmr_med.flare import context
from fedmr_med.schema import dump_yaml
from tests.helpers.contexts import site_context
from tests.helpers.errors import raises
from tests.helpers.federation import demo_site
from tests.helpers.readings import readings
from tests.helpers.small import small_job

SITES = ("bcn", "msk", "vienna-dias")
IMAGES = "data: {source: flamby_isic, center: 0, root: /images}\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FLContext:
    """Return the context of a simulated server whose job carries three sites on the demo."""
    monkeypatch.delenv("FEDMR_MED_SITES", raising=False)
    fl_ctx = site_context(tmp_path, "server", simulated=False, job_id=SimulatorConstants.JOB_NAME)
    write_text(context.config_folder(fl_ctx) / "fedmr.yaml", dump_yaml(small_job()))
    for site in SITES:
        write_text(context.config_folder(fl_ctx) / "sites" / site / "site.yaml", demo_site(site))
    return fl_ctx


def test_it_reads_each_sites_settings_once(server: FLContext) -> None:
    with readings() as counted:
        job, demo = context.server_job(server)
    assert demo
    assert job.digest() == small_job().digest()
    assert sorted(path.parent.name for path in counted.elements() if path.name == "site.yaml") == list(SITES)


def test_it_refuses_a_federation_in_which_only_some_sites_have_images(server: FLContext) -> None:
    write_text(context.config_folder(server) / "sites" / "bcn" / "site.yaml", IMAGES)
    with raises("data.missing", "data.root"):
        context.server_job(server)
