"""Kits of sites with certificates, as FLARE's provisioning issues them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

SERVER = "server1"


class Authority:
    """Issues kits as FLARE's provisioning does."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.root = self._certificate("root", self.key, None)

    def kit(self, folder: Path, name: str, role: str | None = None, days: int = 10) -> Path:
        key = rsa.generate_private_key(65537, 2048)
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        folder.mkdir(parents=True)
        (folder / "client.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
        )
        (folder / "client.crt").write_bytes(self._certificate(name, key, role, days).public_bytes(pem))
        (folder / "rootCA.pem").write_bytes(self.root.public_bytes(pem))
        (folder / "fed_client.json").write_text(json.dumps({"servers": [{"name": "small", "identity": SERVER}]}))
        return folder

    def _certificate(self, name: str, key: rsa.RSAPrivateKey, role: str | None, days: int = 10) -> x509.Certificate:
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if role:
            subject.append(x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role))
        start = datetime.now(UTC) - timedelta(days=20)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=20 + days))
            .sign(self.key, hashes.SHA256())
        )
