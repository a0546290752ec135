"""Fixtures that every test folder shares."""

from pathlib import Path

import pytest
import torch

from tests.helpers import REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real images beside the checkout; tests that need it skip where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder with real images beside the checkout")
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """One compute thread, as in the simulator's client processes: equal to the bit only at an equal number."""
    torch.set_num_threads(1)
