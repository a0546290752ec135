"""The kits of a small federation: provisioned, settled, spoiled, and a server that answers for them."""

import datetime
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from fedmr_med.config import merge
from fedmr_med.deploy.manifest import write_seal
from fedmr_med.deploy.provision import provision
from fedmr_med.files import write_text

PROJECT = """
api_version: 3
name: small
participants:
  - {name: server, type: server, org: coordinator, fed_learn_port: 8002, default_host: localhost}
  - {name: msk, type: client, org: msk}
  - {name: lead@example.org, type: admin, org: coordinator, role: lead}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {template_file: [master_template.yml]}
  - path: fedmr_med.deploy.builder.LockedKitBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config}
  - path: nvflare.lighter.impl.cert.CertBuilder
"""
RELAY = """
  - name: gateway
    type: relay
    org: msk
    listening_host: {default_host: localhost, host_names: [localhost, 127.0.0.1], port: 8102}
  - {name: msk, type: client, org: msk, connect_to: {name: gateway}}
"""
RELAYED = PROJECT.replace("\n  - {name: msk, type: client, org: msk}\n", RELAY)
"""The same, with a relay between the hospital and the server."""

SITE = """# The hospital's own file.
data:
  source: demo
  center: 4
policy:
  # Prototypes of these classes may leave.
  share_prototypes: true
  min_class_count: 11
  share_metrics: per_class
"""
DATE = "Mon, 06 Jul 2026 10:00:00 GMT"


def project_in(folder: Path, project: str = PROJECT) -> tuple[Path, Path, Path]:
    """Write a project with one hospital; return its file, its workspace and the folder of its sites."""
    write_text(folder / "project.yml", project)
    write_text(folder / "sites" / "msk" / "site.yaml", SITE)
    return folder / "project.yml", folder / "workspace", folder / "sites"


def provision_small(folder: Path, project: str = PROJECT) -> Path:
    """Return a folder with the kits of a server, one hospital (it has a policy) and a lead."""
    kits = provision(*project_in(folder, project))
    settle(kits / "msk", SITE)
    return kits


def settle(kit: Path, site_file: str) -> None:
    """Do what a hospital does on its first day: write its own ``site.yaml``, and seal it."""
    write_text(kit / "local" / "site.yaml", site_file)
    write_seal(kit)


@contextmanager
def serving(kit: Path, *, tls: bool = True) -> Iterator[int]:
    """Answer one connection as the server of ``kit`` would; give the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=kit / "startup" / "rootCA.pem")
    context.load_cert_chain(kit / "startup" / "server.crt", kit / "startup" / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            try:
                stream = context.wrap_socket(connection, server_side=True) if tls else connection
                stream.recv(1000)
                stream.sendall(f"HTTP/1.1 426 Upgrade Required\r\nDate: {DATE}\r\n\r\n".encode())
                stream.close()
            except OSError:
                connection.close()  # the client hung up: that is what some of the tests are about

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Closing a listener does not wake who waits for a call, and nobody may have called.
            socket.create_connection(listener.getsockname()).close()
            thread.join()


def point_to(kit: Path, target: str) -> None:
    """Let a hospital's kit, or a relay's, connect to another address."""
    relayed, relay = kit / "local" / "relay__resources.json", kit / "startup" / "fed_relay.json"
    if relayed.exists():
        change_json(relayed, {"relay_config": {"address": target}})
    elif relay.exists():
        change_json(relay, {"connect_to": {"address": target}})
    else:
        path = kit / "startup" / "fed_client.json"
        (server,) = json.loads(path.read_text())["servers"]
        change_json(path, {"servers": [merge(server, {"service": {"target": target}})]})


def change_json(path: Path, changes: dict[str, Any]) -> None:
    """Write a file anew with other values; of a section only the keys that are named change."""
    path.write_text(json.dumps(merge(json.loads(path.read_text()), changes)))


def expire(kit: Path) -> None:
    """Replace the site's certificate by one of yesterday."""
    path = kit / "startup" / "client.crt"
    old = x509.load_pem_x509_certificate(path.read_bytes())
    key = serialization.load_pem_private_key((kit / "startup" / "client.key").read_bytes(), password=None)
    now = datetime.datetime.now(datetime.UTC)
    new = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(old.serial_number)
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now - datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(new.public_bytes(serialization.Encoding.PEM))
