"""Renewing certificates: who needs a new one, and kits that carry it. The root key stays."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from fedmr_med.deploy.acts import record
from fedmr_med.deploy.kit import read_json
from fedmr_med.deploy.provision import provision
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text

SOON = timedelta(days=60)
ROOT = "root"


def expiries(workspace: Path) -> dict[str, datetime]:
    """Return until when the certificate of each participant is valid, and that of the root under ``root``.

    Raises:
        ConfigError: the folder is not one that provisioning made.
    """
    content = read_json(_state(workspace))
    texts = {name: entry["cert"] for name, entry in content.items() if isinstance(entry, dict)}
    texts[ROOT] = content["root_cert"]
    return {name: x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc for name, text in texts.items()}


def renew(
    project_file: Path,
    workspace: Path,
    sites: Path,
    *,
    names: tuple[str, ...] = (),
    within: timedelta = SOON,
    host: str | None = None,
    port: int | None = None,
) -> tuple[Path, tuple[str, ...]]:
    """Make new kits in which the named participants have new keys and certificates.

    No kit carries a policy, so a hospital's own stays what it is: ``fedmr-med site adopt`` takes it over.

    Args:
        project_file, workspace, sites, host, port: as for provisioning.
        names: server, hospitals or people; none means all whose certificates expire within ``within``.

    Returns:
        The folder with the kits, and who was renewed.

    Raises:
        ConfigError: somebody has no certificate to renew, nobody needs one, or the root itself expires first.
    """
    expiry = expiries(workspace)
    root = expiry.pop(ROOT)
    chosen = tuple(sorted(names or (name for name, until in expiry.items() if until - datetime.now(UTC) < within)))
    if unknown := [name for name in chosen if name not in expiry]:
        raise ConfigError(
            f"{unknown[0]!r} has no certificate in {workspace} ({', '.join(sorted(expiry))}).",
            code="renewal.unknown-participant",
        )
    if not chosen:
        first = min(expiry.values())
        raise ConfigError(
            f"No certificate expires within {within.days} days; the first one does on {first:%Y-%m-%d}.",
            code="renewal.not-due",
        )
    if root - datetime.now(UTC) < SOON:
        raise ConfigError(
            f"The root certificate ends on {root:%Y-%m-%d}: provision anew, with an empty workspace.",
            code="renewal.root-expires",
        )
    state = _state(workspace)
    before = state.read_text(encoding="utf-8")
    content: dict[str, Any] = {name: entry for name, entry in json.loads(before).items() if name not in chosen}
    write_text(state, json.dumps(content))
    try:
        kits = provision(project_file, workspace, sites, host=host, port=port)
    except BaseException:
        write_text(state, before)
        raise
    record(workspace, "renew", kits=kits.name, participants=chosen)
    return kits, chosen


def _state(workspace: Path) -> Path:
    files = sorted(workspace.glob("*/state/cert.json"))
    if len(files) != 1:
        raise ConfigError(
            f"{workspace} holds {'no' if not files else 'more than one'} federation's state/cert.json.",
            code="renewal.no-state",
        )
    return files[0]
