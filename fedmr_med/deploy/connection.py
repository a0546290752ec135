"""Trying the way to the server, or to the relay before it: name, port, mutual TLS, and who answers."""

import email.utils
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from fedmr_med.deploy.kit import RELAY_RESOURCES, STARTUP, kind_of, read_json
from fedmr_med.deploy.manifest import certificate
from fedmr_med.errors import ConfigError, DeployError


@dataclass(frozen=True)
class ServerAnswer:
    """Who answered, at which address, and what time it is there (if it said so)."""

    name: str
    address: str
    time: datetime | None


def try_server(kit: Path, timeout: float = 10.0) -> ServerAnswer:
    """Connect as the hospital or relay would and look at who answers.

    Raises:
        DeployError: nobody answers, or not the server the kit was made for.
        ConfigError: the kit's files are not usable.
    """
    host, port, identity = _server(kit)
    address = f"{host}:{port}"
    until = certificate(kit / "startup" / "client.crt").not_valid_after_utc
    if until < datetime.now(UTC):
        # In TLS 1.3 a client learns only from later silence that its certificate was refused.
        raise DeployError(
            f"{address} refuses this kit: its certificate expired on {until:%Y-%m-%d}.", code="server.refuses-kit"
        )
    try:
        with (
            socket.create_connection((host, port), timeout=timeout) as plain,
            _context(kit).wrap_socket(plain, server_hostname=host) as secure,
        ):
            raw = secure.getpeercert(binary_form=True)
            answer = _ask_time(secure, host)
    except socket.gaierror as e:
        raise DeployError(
            f"The name {host} does not resolve here; ask your network team, or fix the kit.", code="server.no-address"
        ) from e
    except ssl.SSLCertVerificationError as e:
        raise DeployError(
            f"{address} shows a certificate that this kit does not trust: {e.verify_message}.", code="server.untrusted"
        ) from e
    except ssl.SSLError as e:
        raise DeployError(
            f"{address} refuses this kit's certificate or does not speak TLS ({e.reason}).", code="server.refuses-kit"
        ) from e
    except OSError as e:
        raise DeployError(
            f"{address} cannot be reached ({e}); is the server running and the port open?", code="server.unreachable"
        ) from e
    if raw is None:
        raise DeployError(f"{address} shows no certificate.", code="server.untrusted")
    shown = x509.load_der_x509_certificate(raw)
    name = str(shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    if name != identity:
        raise DeployError(
            f"{address} is {name!r}, but this kit was made for the server {identity!r}.", code="server.wrong-name"
        )
    if host not in _names(shown):
        raise DeployError(
            f"{name!r} does not answer to the name {host}; its certificate says {', '.join(_names(shown))}.",
            code="server.wrong-address",
        )
    return ServerAnswer(name, address, answer)


def _server(kit: Path) -> tuple[str, int, str]:
    """Return host, port and name of whom FLARE connects to with this kit."""
    path = kit / "local" / RELAY_RESOURCES
    if not path.is_file():
        path = kit / "startup" / STARTUP["relay" if kind_of(kit) == "relay" else "hospital"]
    content = read_json(path)
    try:
        entry = content.get("relay_config") or content.get("connect_to") or content["servers"][0]
        address = entry["service"]["target"] if "service" in entry else entry["address"]
        host, _, port = str(address).rpartition(":")
        return host, int(port), str(entry["identity"])
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as e:
        raise ConfigError(f"{path} does not name the server.", code="kit.form") from e


def _context(kit: Path) -> ssl.SSLContext:
    startup = kit / "startup"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The kit names the server by its certificate, which is compared below with a message of our own.
    context.check_hostname = False
    try:
        context.load_verify_locations(startup / "rootCA.pem")
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"The certificates in {startup} cannot be used ({e}).", code="kit.certificates") from e
    return context


def _ask_time(secure: ssl.SSLSocket, host: str) -> datetime | None:
    """Return the time in the server's answer to a plain HTTP request; not every scheme of FLARE gives one."""
    secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    reply = secure.recv(4096).decode("latin-1")
    for line in reply.split("\r\n"):
        if line.lower().startswith("date:"):
            return email.utils.parsedate_to_datetime(line[5:].strip()).astimezone(UTC)
    return None


def _names(shown: x509.Certificate) -> list[str]:
    try:
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return names.get_values_for_type(x509.DNSName) + addresses
