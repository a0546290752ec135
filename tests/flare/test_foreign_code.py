"""Networks by their dotted path: taken where somebody has agreed to them, refused at a locked site and server."""

import json
from pathlib import Path

import pytest
from nvflare.apis.fl_context import FLContext

from fedmr_med.config import JobConfig
from fedmr_med.deploy.kit import SERVER_CLASSES, SITE_CLASSES
from fedmr_med.files import write_text
from fedmr_med.flare import context
from fedmr_med.schema import dump_yaml
from tests.helpers.contexts import JOB_ID, site_context
from tests.helpers.errors import raises
from tests.helpers.federation import demo_site
from tests.helpers.small import small_job

FOREIGN = "fedmr_med.models.small_cnn.SmallCNN"


def job(name: str) -> JobConfig:
    return small_job(model={"name": name})


def at_site(folder: Path, name: str, classes: tuple[str, ...], *, simulated: bool = False) -> FLContext:
    """Return the context of a site or server with a job that names a network, and a class list."""
    write_text(folder / JOB_ID / "app_msk" / "config" / "fedmr.yaml", dump_yaml(job(name)))
    write_text(folder / "local" / "site.yaml", demo_site("msk"))
    write_text(folder / "local" / "resources.json", json.dumps({"class_allow_list": list(classes)}))
    return site_context(folder, "msk", simulated=simulated)


def client_job(fl_ctx: FLContext) -> JobConfig:
    return context.site_views(fl_ctx).before_work().job


def server_job(fl_ctx: FLContext) -> JobConfig:
    return context.server_job(fl_ctx)[0]


@pytest.mark.parametrize("read", [client_job, server_job])
def test_a_locked_kit_refuses_foreign_code_before_it_is_imported(read, tmp_path: Path) -> None:
    for classes in (SITE_CLASSES, SERVER_CLASSES, ()):
        fl_ctx = at_site(tmp_path, "surely.not.Imported", classes)
        with raises("config.not-on-class-list", "model.name"):
            read(fl_ctx)


@pytest.mark.parametrize("read", [client_job, server_job])
def test_a_class_list_that_has_it_takes_it(read, tmp_path: Path) -> None:
    assert read(at_site(tmp_path, FOREIGN, (*SITE_CLASSES, FOREIGN))).model.name == FOREIGN


def test_a_job_cannot_get_around_it_by_bringing_a_folder_for_code(tmp_path: Path) -> None:
    fl_ctx = at_site(tmp_path, FOREIGN, SITE_CLASSES)
    write_text(tmp_path / JOB_ID / "app_msk" / "custom" / "README", "")
    with raises("config.not-on-class-list", "model.name"):
        client_job(fl_ctx)


def test_a_simulation_and_registered_names_ask_no_class_list(tmp_path: Path) -> None:
    assert client_job(at_site(tmp_path / "a", FOREIGN, (), simulated=True)).model.name == FOREIGN
    assert client_job(at_site(tmp_path / "b", "small_cnn", ())).model.name == "small_cnn"
