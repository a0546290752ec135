"""A new kit takes over what an old one gathered: policy, state, logs. Provisioning itself never writes them."""

import shutil
from pathlib import Path

from cryptography.x509.oid import NameOID

from fedmr_med.deploy.health import running_clients
from fedmr_med.deploy.manifest import certificate, identity, write_seal
from fedmr_med.errors import ConfigError
from fedmr_med.schema import read_yaml, validated
from fedmr_med.sites import SITE_FILE, SiteConfig

_POLICY = f"local/{SITE_FILE}"
# What a hospital, the server or a person gathers in a kit. Anything else belongs to the new kit or to FLARE.
GATHERED = (
    _POLICY,
    "client_state",
    "released.jsonl",
    "approvals.jsonl",
    "chains",
    "jobs-storage",
    "snapshot-storage",
    "acts.jsonl",
)


def adopt(old: Path, new: Path) -> list[str]:
    """Copy what ``old`` has gathered into ``new`` and seal it with the new kit's own key; return what was taken.

    Raises:
        ConfigError: the kits are not of the same participant, the old one is still running, or the new one has
            something of its own already. Nothing has been copied then.
    """
    whose = _name(new)
    if _name(old) != whose:
        raise ConfigError(f"{old} is the kit of {_name(old)!r}, not of {whose!r}.", code="kit.other-participant")
    if running_clients(old):
        raise ConfigError(f"{old} is still running: stop it first (touch {old / 'shutdown.fl'}).", code="kit.running")
    taken = [name for name in GATHERED if (old / name).exists()]
    if not taken or old.resolve() == new.resolve():
        raise ConfigError(f"{new} has nothing to take over from {old}.", code="kit.nothing-to-adopt")
    if there := [new / name for name in taken if (new / name).exists()]:
        raise ConfigError(
            f"{there[0]} is there already; adopt only into a kit that has not been used.", code="file.exists"
        )
    if _POLICY in taken:
        _check_paths(old)
    for name in taken:
        if (old / name).is_dir():
            shutil.copytree(old / name, new / name)
        else:
            shutil.copy2(old / name, new / name)
    if _POLICY in taken:
        write_seal(new)
    return taken


def _check_paths(old: Path) -> None:
    """Refuse a site file whose relative paths would mean other folders in the new kit."""
    path = old / _POLICY
    site = validated(SiteConfig, read_yaml(path), str(path))
    named = [getattr(site.data, key, None) for key in ("root", "split_file", "flamby")]
    if any(folder and not folder.expanduser().is_absolute() for folder in (*named, site.cache)):
        raise ConfigError(
            f"{path} has paths relative to its own folder; write them in full, then adopt it.", code="kit.relative-path"
        )


def _name(kit: Path) -> str:
    """Return whose kit it is, by its certificate."""
    owner = certificate(identity(kit, ".crt"))
    return str(owner.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
