"""Trying the server: real TLS with the kits' own certificates."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmr_med.deploy.connection import try_server
from fedmr_med.deploy.provision import provision
from fedmr_med.files import write_text
from tests.deploy.conftest import PROJECT, SITE
from tests.helpers.errors import raises
from tests.helpers.federation import free_port

DATE = "Mon, 06 Jul 2026 10:00:00 GMT"


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
        yield listener.getsockname()[1]
        thread.join(timeout=20)


def point_to(kit: Path, target: str) -> None:
    """Let a hospital's kit connect to another address."""
    path = kit / "startup" / "fed_client.json"
    content = json.loads(path.read_text())
    content["servers"][0]["service"]["target"] = target
    path.write_text(json.dumps(content))


def test_the_right_server_answers(kits: Path) -> None:
    with serving(kits / "server") as port:
        point_to(kits / "msk", f"localhost:{port}")
        answer = try_server(kits / "msk")
    assert answer.name == "server"
    assert answer.time is not None
    assert answer.time.hour == 10


def test_nobody_listens(kits: Path) -> None:
    point_to(kits / "msk", f"localhost:{free_port()}")
    with raises("server.unreachable"):
        try_server(kits / "msk")


def test_a_name_that_does_not_resolve(kits: Path) -> None:
    point_to(kits / "msk", "no-such-host.invalid:8002")
    with raises("server.no-address"):
        try_server(kits / "msk")


def test_a_server_under_a_name_its_certificate_does_not_have(kits: Path) -> None:
    with serving(kits / "server") as port:
        point_to(kits / "msk", f"127.0.0.2:{port}")
        with raises("server.unreachable"):
            try_server(kits / "msk")
        point_to(kits / "msk", f"127.0.0.1:{port}")
        with raises("server.wrong-address"):
            try_server(kits / "msk")


def test_another_servers_name_in_the_kit(kits: Path) -> None:
    path = kits / "msk" / "startup" / "fed_client.json"
    path.write_text(path.read_text().replace('"identity": "server"', '"identity": "fl.example.org"'))
    with serving(kits / "server") as port:
        point_to(kits / "msk", f"localhost:{port}")
        with raises("server.wrong-name"):
            try_server(kits / "msk")


def test_a_server_of_another_federation(kits: Path, tmp_path: Path) -> None:
    write_text(tmp_path / "project.yml", PROJECT.replace("name: small", "name: other"))
    write_text(tmp_path / "sites" / "msk" / "site.yaml", SITE)
    other = provision(tmp_path / "project.yml", tmp_path / "workspace", tmp_path / "sites")
    with serving(other / "server") as port:
        point_to(kits / "msk", f"localhost:{port}")
        with raises("server.untrusted"):
            try_server(kits / "msk")


def test_a_port_that_does_not_speak_tls(kits: Path) -> None:
    with serving(kits / "server", tls=False) as port:
        point_to(kits / "msk", f"localhost:{port}")
        with raises("server.refuses-kit"):
            try_server(kits / "msk")
