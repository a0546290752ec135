"""Tampering with a kit shows; a hospital's own changes count once it has sealed them."""

import json
from pathlib import Path

import pytest

from fedmr_med.deploy.manifest import MANIFEST, SEAL, verify, write_seal
from tests.helpers.errors import raises


def test_a_fresh_kit_is_intact(provisioned: Path) -> None:
    state = verify(provisioned / "msk")
    assert state.intact
    assert state.sealed == ("local/site.yaml",), "the policy is the hospital's own, not the kit's"


@pytest.mark.parametrize(
    "name", ["local/site.yaml", "local/privacy.json", "local/authorization.json.default", "startup/fed_client.json"]
)
def test_a_changed_file_shows(kits: Path, name: str) -> None:
    path = kits / "msk" / name
    path.write_text(path.read_text() + "\n")
    assert verify(kits / "msk").changed == (name,)


def test_a_removed_and_an_added_file_show(kits: Path) -> None:
    (kits / "msk" / "local" / "privacy.json").unlink()
    (kits / "msk" / "local" / "extra__resources.json").write_text("{}")
    state = verify(kits / "msk")
    assert state.missing == ("local/privacy.json",)
    assert state.unexpected == ("local/extra__resources.json",)


def test_a_forged_manifest_shows(kits: Path) -> None:
    path = kits / "msk" / "local" / "privacy.json"
    path.write_text("{}")
    manifest = kits / "msk" / MANIFEST
    content = json.loads(manifest.read_text())
    content["files"]["local/privacy.json"] = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    manifest.write_text(json.dumps(content))
    with raises("kit.signature", "rootCA.pem"):
        verify(kits / "msk")


def test_another_kits_manifest_does_not_fit(kits: Path) -> None:
    (kits / "msk" / SEAL).unlink()
    (kits / "msk" / MANIFEST).write_text((kits / "server" / MANIFEST).read_text())
    assert not verify(kits / "msk").intact


def test_without_any_list_the_kit_is_refused(kits: Path) -> None:
    for name in (MANIFEST, SEAL):
        (kits / "msk" / name).unlink()
    with raises("kit.not-sealed"):
        verify(kits / "msk")


def test_a_sealed_change_counts_and_a_later_one_shows(kits: Path) -> None:
    path = kits / "msk" / "local" / "site.yaml"
    path.write_text(path.read_text().replace("true", "false"))
    write_seal(kits / "msk")
    state = verify(kits / "msk")
    assert state.intact
    assert state.sealed == ("local/site.yaml",)
    path.write_text(path.read_text().replace("false", "true") + "# back\n")
    assert verify(kits / "msk").changed == ("local/site.yaml",)


def test_a_seal_of_another_site_does_not_count(kits: Path) -> None:
    write_seal(kits / "server")
    (kits / "msk" / SEAL).write_text((kits / "server" / SEAL).read_text())
    with raises("kit.signature", "client.crt"):
        verify(kits / "msk")
