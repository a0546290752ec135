"""Fixtures that every test folder shares, and how tests are dealt to workers that run them side by side."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.helpers import REPOSITORY

# Machines are noisy: a property does not fail because its examples came slowly.
settings.register_profile("noisy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noisy")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real images beside the checkout; tests that need it skip where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder with real images beside the checkout")
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep together what shares a federation or simulator runs, and start with what takes longest.

    The federation's tests wait more than they compute, so that other workers have the cores meanwhile.
    """
    items.sort(
        key=lambda item: (item.get_closest_marker("federation") is None, item.get_closest_marker("slow") is None)
    )
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        group = None
        if item.get_closest_marker("federation"):
            group = "federation"
        elif item.get_closest_marker("slow") or "module" in _scopes(item):
            group = item.path.stem
        if group:
            # What pytest-xdist makes of its own mark; that is read before this hook is called.
            item._nodeid = f"{item.nodeid}@{group}"


def _scopes(item: pytest.Item) -> set[str]:
    """Return the scopes of the fixtures that a test uses."""
    used = getattr(item, "_fixtureinfo", None)
    definitions = used.name2fixturedefs.values() if used else ()
    return {definition.scope for fixtures in definitions for definition in fixtures}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """One compute thread, as in the simulator's client processes: equal to the bit only at an equal number."""
    torch.set_num_threads(1)
