"""Errors are expected by code and key: the sentence may change, the fault may not."""

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
