"""A new kit takes over what an old one gathered, first of all the hospital's own policy."""

import shutil
from pathlib import Path

import pytest

from fedmr_med.deploy.adopt import adopt
from fedmr_med.deploy.manifest import verify
from fedmr_med.deploy.provision import provision
from fedmr_med.files import write_text
from tests.helpers.errors import raises
from tests.helpers.kits import SITE, project_in, settle


@pytest.fixture(scope="module")
def provisioned_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    project = project_in(tmp_path_factory.mktemp("twice"))
    return provision(*project), provision(*project)


@pytest.fixture
def old_and_new(provisioned_twice: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The kits of two runs of provisioning; the hospital has worked with the first one."""
    first, second = (shutil.copytree(kits, tmp_path / kits.name) for kits in provisioned_twice)
    settle(first / "msk", SITE.replace("share_prototypes: true", "share_prototypes: false"))
    write_text(first / "msk" / "released.jsonl", "{}\n")
    write_text(first / "msk" / "client_state" / "chain" / "1.pt", "state")
    write_text(first / "server" / "chains" / "abc" / "results.json", "{}")
    write_text(first / "lead@example.org" / "chains" / "abc" / "jobs.json", '["abc"]')
    return first, second


def test_policy_state_and_audit_log_move_into_the_new_kit(old_and_new: tuple[Path, Path]) -> None:
    old, new = (kits / "msk" for kits in old_and_new)
    assert not (new / "local" / "site.yaml").exists(), "provisioning never writes a policy"
    taken = adopt(old, new)
    assert set(taken) == {"local/site.yaml", "client_state", "released.jsonl"}
    for name in ("local/site.yaml", "client_state/chain/1.pt", "released.jsonl"):
        assert (new / name).read_bytes() == (old / name).read_bytes()
    assert "share_prototypes: false" in (new / "local" / "site.yaml").read_text()
    assert verify(new).intact
    assert verify(new).sealed == ("local/site.yaml",)


def test_the_server_and_a_person_keep_their_chains(old_and_new: tuple[Path, Path]) -> None:
    for name, file in (("server", "results.json"), ("lead@example.org", "jobs.json")):
        old, new = (kits / name for kits in old_and_new)
        assert adopt(old, new) == ["chains"]
        assert (new / "chains" / "abc" / file).exists()


def test_what_the_new_kit_already_has_is_never_overwritten(old_and_new: tuple[Path, Path]) -> None:
    old, new = (kits / "msk" for kits in old_and_new)
    write_text(new / "released.jsonl", "{}\n")
    with raises("file.exists"):
        adopt(old, new)
    assert not (new / "local" / "site.yaml").exists(), "all or nothing"


def test_another_hospitals_kit_is_refused(old_and_new: tuple[Path, Path]) -> None:
    old, new = old_and_new
    with raises("kit.other-participant"):
        adopt(old / "server", new / "msk")
    with raises("kit.nothing-to-adopt"):
        adopt(new / "msk", new / "msk")


def test_relative_paths_that_would_point_elsewhere_are_refused(old_and_new: tuple[Path, Path]) -> None:
    old, new = (kits / "msk" for kits in old_and_new)
    settle(old, "data: {source: manifest, root: ../images}\npolicy: {}\n")
    with raises("kit.relative-path"):
        adopt(old, new)
