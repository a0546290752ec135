"""Errors are expected by code and key: the sentence may change, the fault may not."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedmr_med.errors import FedMRError


@contextmanager
def raises(
    code: str, key: str | None = None, kind: type[FedMRError] = FedMRError
) -> Iterator[pytest.ExceptionInfo[FedMRError]]:
    """Expect an error of this kind with this code, and with this key where one is given."""
    with pytest.raises(kind) as caught:
        yield caught
    assert (caught.value.code, key and caught.value.key) == (code, key), f"{caught.value!r}, {caught.value.key}"


def printed_fault(capsys: pytest.CaptureFixture[str]) -> tuple[str, str | None]:
    """Return the code and the key that a command with ``--json`` failed with; nothing else is on standard output."""
    error = json.loads(capsys.readouterr().out)["error"]
    return error["code"], error["key"]
