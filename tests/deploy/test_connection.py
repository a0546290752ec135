"""Trying the server: real TLS with the kits' own certificates."""

import threading
from pathlib import Path

import pytest

from fedmr_med.deploy.connection import ServerAnswer, try_server
from tests.helpers.errors import raises
from tests.helpers.federation import free_port
from tests.helpers.kits import PROJECT, point_to, provision_small, serving


def answer_of(kits: Path, host: str = "localhost", *, of: Path | None = None, tls: bool = True) -> ServerAnswer:
    """Let a hospital try a server, which has the kit ``of``, under a name of this machine."""
    with serving((of or kits) / "server", tls=tls) as port:
        point_to(kits / "msk", f"{host}:{port}")
        return try_server(kits / "msk")


def test_the_right_server_answers(kits: Path) -> None:
    answer = answer_of(kits)
    assert answer.name == "server"
    assert answer.time is not None
    assert answer.time.hour == 10


@pytest.mark.parametrize(
    ("host", "code"), [("localhost", "server.unreachable"), ("no-such-host.invalid", "server.no-address")]
)
def test_nobody_listens(kits: Path, host: str, code: str) -> None:
    point_to(kits / "msk", f"{host}:{free_port()}")
    with raises(code):
        try_server(kits / "msk")


@pytest.mark.parametrize(
    ("host", "tls", "code"),
    [
        ("127.0.0.2", True, "server.unreachable"),
        ("127.0.0.1", True, "server.wrong-address"),
        ("localhost", False, "server.refuses-kit"),
    ],
)
def test_another_address_and_another_protocol(kits: Path, host: str, tls: bool, code: str) -> None:
    with raises(code):
        answer_of(kits, host, tls=tls)


def test_another_servers_name_in_the_kit(kits: Path) -> None:
    path = kits / "msk" / "startup" / "fed_client.json"
    path.write_text(path.read_text().replace('"identity": "server"', '"identity": "fl.example.org"'))
    with raises("server.wrong-name"):
        answer_of(kits)


def test_a_server_of_another_federation(kits: Path, tmp_path: Path) -> None:
    other = provision_small(tmp_path, PROJECT.replace("name: small", "name: other"))
    with raises("server.untrusted"):
        answer_of(kits, of=other)


def test_a_server_that_nobody_calls_ends_with_its_test(kits: Path) -> None:
    """A thread that waits for a call would keep the process of the tests from ending."""
    before = threading.active_count()
    with serving(kits / "server"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
