"""Trying the server: real TLS with the kits' own certificates."""

import threading
from pathlib import Path

from fedmr_med.deploy.connection import try_server
from fedmr_med.deploy.provision import provision
from fedmr_med.files import write_text
from tests.helpers.errors import raises
from tests.helpers.federation import free_port
from tests.helpers.kits import PROJECT, SITE, point_to, serving


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


def test_a_server_that_nobody_calls_ends_with_its_test(kits: Path) -> None:
    """A thread that waits for a call would keep the process of the tests from ending."""
    before = threading.active_count()
    with serving(kits / "server"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
