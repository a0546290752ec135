"""Who a key belongs to: signatures with the certificates that a federation was provisioned with."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from fedmr_med.errors import ConfigError, WireError

MAX_CERTIFICATE, MAX_SIGNATURE = 8192, 1024
"""Bytes of what a site sends along with its keys, at most."""

_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


class Identity(Protocol):
    """How a site proves that a message is its own, and looks at the proofs of others."""

    @property
    def certificate(self) -> bytes:
        """What others need to check this site's signatures."""

    def sign(self, message: bytes) -> bytes:
        """Return this site's signature."""

    def check(self, site: str, certificate: bytes, message: bytes, signature: bytes) -> None:
        """Raise WireError unless ``site`` signed the message."""


class Unsigned:
    """No proofs: for sites that are simulated on one machine, where nobody could be deceived."""

    certificate = b""

    def sign(self, message: bytes) -> bytes:
        """Return no signature."""
        return b""

    def check(self, site: str, certificate: bytes, message: bytes, signature: bytes) -> None:
        """Take any message for what it says it is."""


UNSIGNED = Unsigned()


class Certified:
    """Signatures with the site's own certificate; those of others must come from the same root.

    Args:
        startup: the ``startup`` folder of a kit, with ``client.crt``, ``client.key``, ``rootCA.pem``, and
            ``fed_client.json``, which names the server.

    Raises:
        ConfigError: one of the files is missing or of no use.
    """

    def __init__(self, startup: Path):
        try:
            self.certificate = (startup / "client.crt").read_bytes()
            key = serialization.load_pem_private_key((startup / "client.key").read_bytes(), password=None)
            self._root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
        except (OSError, ValueError) as e:
            raise ConfigError(f"{startup} has no key and certificate to sign with: {e}.", code="file.unreadable") from e
        self._servers = _servers(startup / "fed_client.json")
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ConfigError(
                f"{startup / 'client.key'} is not an RSA key, as FLARE's kits have.", code="file.wrong-kind"
            )
        self._key = key

    def sign(self, message: bytes) -> bytes:
        """Return this site's signature (RSA-PSS with SHA-256)."""
        return self._key.sign(message, _PADDING, hashes.SHA256())

    def check(self, site: str, certificate: bytes, message: bytes, signature: bytes) -> None:
        """Look at certificate and signature of another site.

        Raises:
            WireError: the certificate is not of this federation, expired, of a person, of the server or of somebody
                else, or the signature is not made with it.
        """
        try:
            theirs = x509.load_pem_x509_certificate(certificate)
            theirs.verify_directly_issued_by(self._root)
        except (ValueError, TypeError, InvalidSignature) as e:
            raise WireError(
                f"the certificate of {site} was not issued by this federation", code="secure.certificate", key="issuer"
            ) from e
        names = [str(name.value) for name in theirs.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if names != [site]:
            raise WireError(
                f"the certificate sent for {site} is somebody else's", code="secure.certificate", key="site"
            )
        if site in self._servers:
            # FLARE gives the server's certificate no role, so its name alone tells it from a site's.
            raise WireError(f"{site} is the server, not a site", code="secure.certificate", key="role")
        roles = {str(role.value) for role in theirs.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)}
        if not roles <= {"client"}:
            raise WireError(
                f"{site} is not a site of this federation, its certificate says {', '.join(roles)}",
                code="secure.certificate",
                key="role",
            )
        if not theirs.not_valid_before_utc <= datetime.now(UTC) <= theirs.not_valid_after_utc:
            raise WireError(f"the certificate of {site} is not valid today", code="secure.certificate", key="date")
        key = theirs.public_key()
        try:
            if not isinstance(key, rsa.RSAPublicKey):
                raise InvalidSignature
            key.verify(signature, message, _PADDING, hashes.SHA256())
        except InvalidSignature as e:
            raise WireError(f"the keys of {site} are not signed by it", code="secure.signature") from e


def _servers(path: Path) -> frozenset[str]:
    """Return the names of the federation's servers, as a site's kit has them.

    Raises:
        ConfigError: the file does not name any.
    """
    try:
        servers = frozenset(str(server["identity"]) for server in json.loads(path.read_bytes())["servers"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} does not name the server: {e}.", code="file.unreadable") from e
    if not servers:
        raise ConfigError(f"{path} does not name the server.", code="file.unreadable")
    return servers
