"""Where a hospital's settings come from."""

from pathlib import Path

import pytest

from fedmr_med.sites import DemoSource, FlambyIsicSource, find_site, load_site
from tests.helpers.errors import raises

OPEN = "data: {source: flamby_isic, center: 4}\npolicy: {share_prototypes: true}\n"
CLOSED = "data: {source: flamby_isic, center: 4, root: images}\npolicy: {share_prototypes: false}\n"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMR_MED_SITES", raising=False)
    monkeypatch.delenv("FEDMR_MED_ISIC", raising=False)


def site_file(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(text)
    return folder / "site.yaml"


def test_the_sites_own_local_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = site_file(tmp_path / "local", CLOSED)
    site_file(tmp_path / "sites" / "msk", OPEN)
    site_file(tmp_path / "job" / "msk", OPEN)
    monkeypatch.setenv("FEDMR_MED_SITES", str(tmp_path / "sites"))
    config, path = find_site("msk", local=tmp_path / "local", job_sites=tmp_path / "job")
    assert path == own
    assert config.policy.share_prototypes is False


def test_then_the_folder_of_the_variable_and_never_the_jobs_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_file(tmp_path / "sites" / "msk", CLOSED)
    site_file(tmp_path / "job" / "msk", OPEN)
    site_file(tmp_path / "job" / "bcn", OPEN)
    monkeypatch.setenv("FEDMR_MED_SITES", str(tmp_path / "sites"))
    config, _ = find_site("msk", local=tmp_path, job_sites=tmp_path / "job")
    assert config.policy.share_prototypes is False
    with raises("file.missing", "FEDMR_MED_SITES"):
        find_site("bcn", local=tmp_path, job_sites=tmp_path / "job")


def test_outside_the_simulator_nothing_is_an_error(tmp_path: Path) -> None:
    with raises("file.missing", "FEDMR_MED_SITES"):
        find_site("msk", local=tmp_path, job_sites=None)


def test_the_demo_stands_in_only_for_settings_a_simulated_job_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_file(tmp_path / "job" / "msk", OPEN)
    config, _ = find_site("msk", local=None, job_sites=tmp_path / "job")
    assert config.data == DemoSource(source="demo", center=4)
    assert config.policy.share_prototypes is True
    site_file(tmp_path / "local", OPEN)
    config, _ = find_site("msk", local=tmp_path / "local", job_sites=tmp_path / "job")
    assert isinstance(config.data, FlambyIsicSource)
    monkeypatch.setenv("FEDMR_MED_ISIC", "/data")
    config, _ = find_site("msk", local=None, job_sites=tmp_path / "job")
    assert isinstance(config.data, FlambyIsicSource)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_site(site_file(tmp_path / "msk", CLOSED))
    assert isinstance(config.data, FlambyIsicSource)
    assert config.data.root == tmp_path / "msk" / "images"
    (tmp_path / "msk" / "site.yaml").write_text(CLOSED + "cache: decoded\n")
    assert load_site(tmp_path / "msk" / "site.yaml").cache == tmp_path / "msk" / "decoded"


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        (OPEN + "polcy: {}\n", "config.unknown-key", "polcy"),
        (
            "data: {source: flamby_isic, center: 4}\npolicy: {share_prototype: true}\n",
            "config.unknown-key",
            "policy.share_prototype",
        ),
        ("data: {source: flamby_isic, center: 9}\n", "config.less-than-equal", "data.flamby_isic.center"),
        ("data: {source: dicom}\n", "config.union-tag-invalid", "data"),
        ("policy: {}\n", "config.missing", "data"),
    ],
)
def test_an_unknown_key_or_value_is_refused_by_name(tmp_path: Path, text: str, code: str, key: str) -> None:
    path = site_file(tmp_path / "msk", text)
    with raises(code, key) as error:
        load_site(path)
    assert str(path) in str(error.value)


def test_without_a_policy_nothing_is_shared(tmp_path: Path) -> None:
    policy = load_site(site_file(tmp_path / "msk", "data: {source: demo, center: 4}\n")).policy
    assert policy.share_prototypes is False
    assert policy.share_metrics == "none"
    assert policy.allow_submit_model is False
