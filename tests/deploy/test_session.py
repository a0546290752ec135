"""A server that goes away, in whatever words FLARE says so, may come back: whoever watches asks again."""

import json
from pathlib import Path

import pytest
from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import NoConnection

from fedmr_med.deploy.session import Session
from tests.helpers.errors import raises


@pytest.mark.parametrize("error", [FLCommunicationError("failed to challenge server: timeout"), NoConnection("gone")])
def test_a_server_that_dies_during_the_login_is_lost_and_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    (tmp_path / "startup").mkdir()
    admin = {"username": "lead@example.org", "host": "localhost", "port": 1}
    (tmp_path / "startup" / "fed_admin.json").write_text(json.dumps({"admin": admin}))

    def dies(self: Session) -> None:
        raise error

    monkeypatch.setattr(Session, "_connect", dies)
    with raises("server.unreachable"):
        Session(tmp_path).abort("job")
