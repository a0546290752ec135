"""A server that goes away, in whatever words FLARE says so, may come back: whoever watches asks again."""

import json
import socket
from pathlib import Path

import pytest
from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import InternalError, NoConnection

from fedmr_med.deploy.session import Session
from tests.helpers.errors import raises


def kit(folder: Path, port: int) -> Path:
    (folder / "startup").mkdir()
    admin = {"username": "lead@example.org", "host": "localhost", "port": port}
    (folder / "startup" / "fed_admin.json").write_text(json.dumps({"admin": admin}))
    return folder


@pytest.mark.parametrize("error", [FLCommunicationError("failed to challenge server: timeout"), NoConnection("gone")])
def test_a_server_that_dies_during_the_login_is_lost_and_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def dies(self: Session) -> None:
        raise error

    monkeypatch.setattr(Session, "_connect", dies)
    with raises("server.unreachable"):
        Session(kit(tmp_path, 1)).abort("job")


def test_a_server_that_dies_before_it_answers_the_login_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*args: object, **options: object) -> None:
        raise InternalError("Communication Error - please try later")

    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", dies)
    with socket.create_server(("localhost", 0)) as server, raises("server.unreachable"):
        Session(kit(tmp_path, server.getsockname()[1])).abort("job")
