"""Signed lists of a kit's files, so that tampering shows. FLARE signs none of it.

Two lists can lie in ``local/``: ``manifest.json`` is signed with the project's root key when the kit is made;
``seal.json`` is signed with the site's own key when the hospital changes what is its own to change (its data
folder, its policy, how it starts FLARE). The later list counts, and says what differs from the earlier one.
"""

import base64
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedmr_med.deploy.kit import read_json
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_json

MANIFEST, SEAL = "local/manifest.json", "local/seal.json"


@dataclass(frozen=True)
class KitState:
    """How a kit compares with its signed lists.

    Attributes:
        sealed: files that the site has changed, added or removed since the project made the kit, and sealed itself.
        changed, missing, unexpected: differences from both lists.
    """

    sealed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @property
    def intact(self) -> bool:
        """Whether every file is as the project or the site signed it."""
        return not (self.changed or self.missing or self.unexpected)


def write_manifest(kit: Path, project_key: rsa.RSAPrivateKey) -> None:
    """List and sign the files of a kit with the project's root key."""
    _write(kit / MANIFEST, "project", digests(kit), project_key)


def write_seal(kit: Path) -> None:
    """List and sign the files of a kit with the site's own key; raise ConfigError if the kit holds no private key."""
    key_file = identity(kit, ".key")
    key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ConfigError(f"{key_file} is not an RSA key.", code="file.wrong-kind")
    _write(kit / SEAL, "site", digests(kit), key)


def verify(kit: Path) -> KitState:
    """Compare a kit with its signed lists; raise ConfigError if there is no list, or a signature is not valid."""
    by_project = _read(kit / MANIFEST, kit / "startup" / "rootCA.pem") if (kit / MANIFEST).exists() else {}
    by_site = _read(kit / SEAL, identity(kit, ".crt")) if (kit / SEAL).exists() else {}
    if not by_project and not by_site:
        raise ConfigError(
            f"{kit / MANIFEST} does not exist; provision the kit anew, or seal it (site seal).", code="kit.not-sealed"
        )
    present = digests(kit)
    # The site's list is the later one and covers the whole kit, so it counts; a file as provisioned is always right.
    reference = by_site or by_project
    shared = present.keys() & reference.keys()
    sealed = [name for name in by_site.keys() | by_project.keys() if by_site.get(name) != by_project.get(name)]
    return KitState(
        sealed=tuple(sorted(sealed)) if by_site and by_project else (),
        changed=tuple(sorted(name for name in shared if present[name] not in (reference[name], by_project.get(name)))),
        missing=tuple(sorted(reference.keys() - present.keys())),
        unexpected=tuple(sorted(present.keys() - reference.keys())),
    )


def digests(kit: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in ``local/`` and ``startup/`` but the private keys and the lists."""
    skipped = {MANIFEST, SEAL}
    names = {}
    for folder in ("local", "startup"):
        for path in sorted((kit / folder).rglob("*")):
            name = path.relative_to(kit).as_posix()
            if path.is_file() and name not in skipped and path.suffix not in (".key", ".pyc"):
                names[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return names


def certificate(path: Path) -> x509.Certificate:
    """Read a certificate; raise ConfigError if it does not exist or is not one."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as e:
        raise ConfigError(f"{path} cannot be read as a certificate ({e}).", code="file.unreadable") from e


def identity(kit: Path, suffix: str) -> Path:
    """Return the certificate (``.crt``) or key (``.key``) of the participant a kit belongs to.

    Raises:
        ConfigError: there is none.
    """
    for name in ("client", "server"):
        path = kit / "startup" / f"{name}{suffix}"
        if path.is_file():
            return path
    raise ConfigError(
        f"{kit / 'startup'} holds no client{suffix} or server{suffix}; is it a startup kit?", code="kit.form"
    )


def _write(path: Path, signer: str, files: dict[str, str], key: rsa.RSAPrivateKey) -> None:
    content = {"signer": signer, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "files": files}
    signature = key.sign(_canonical(content), _padding(), hashes.SHA256())
    write_json(path, content | {"signature": base64.b64encode(signature).decode()})


def _read(path: Path, signer: Path) -> dict[str, str]:
    """Return the files of a list whose signature fits the signer's certificate."""
    content = read_json(path)
    key = certificate(signer).public_key()
    try:
        if not isinstance(key, rsa.RSAPublicKey):
            raise TypeError(f"{signer.name} has no RSA key")
        signature = base64.b64decode(content.pop("signature"))
        key.verify(signature, _canonical(content), _padding(), hashes.SHA256())
        return dict(content["files"])
    except (InvalidSignature, KeyError, TypeError, ValueError, AttributeError) as e:
        raise ConfigError(
            f"The signature of {path} does not fit {signer.name}: it was changed or is another kit's.",
            code="kit.signature",
            key=signer.name,
        ) from e


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _padding() -> padding.PSS:
    return padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.MAX_LENGTH)
