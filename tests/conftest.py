"""Fixtures that every test folder shares, and the order of the tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from fedmr_med.data.cache import CACHE_VARIABLE
from tests.helpers import REPOSITORY
from tests.helpers.archives import write_mini

# One compute thread in the tests and in all processes they start: equal to the bit only at an equal number, and OpenMP
# threads that wait for each other on busy cores take ten times as long and more.
os.environ["OMP_NUM_THREADS"] = "1"

# No test can see a power cut, and a killed process loses nothing that it has written: nobody waits for the disk here.
os.fsync = lambda descriptor: None

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what takes longest, so that workers that run tests side by side end together.

    The hostile jobs open the kits of the federation, so they come after its other tests.
    """

    def place(item: pytest.Item) -> tuple[bool, bool, bool]:
        federation, slow = (item.get_closest_marker(name) is not None for name in ("federation", "slow"))
        return not federation, not slow, "hostile" in getattr(item, "fixturenames", ())

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Let one worker have all tests of a file, which share its fixtures; files keep the order of their tests."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives files to workers in the order of the tests, those of the federation as two halves.

    Each half waits more than it computes. A worker starts one federation for all tests that it runs on it.
    """

    SECOND = ("approval", "hostile", "operating")

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        _, federation, rest = path.partition("tests/e2e/test_federation")
        if not federation:
            return path
        return "second federation" if rest.strip("_").removesuffix(".py") in self.SECOND else "first federation"


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded images, features and journals of the tests stay out of the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        if CACHE_VARIABLE not in os.environ:
            patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """One compute thread, whatever the test before has set."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fmnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small FMNIST in the form of the official one; not to be changed."""
    folder = tmp_path_factory.mktemp("fmnist")
    write_mini("fmnist", folder, per_class=20, test_per_class=4)
    return folder


@pytest.fixture(scope="session")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kits of a server, one hospital (it has a policy) and a lead; not to be changed."""
    from tests.helpers.kits import provision_small  # FLARE takes a second to import

    return provision_small(tmp_path_factory.mktemp("provisioned"))


@pytest.fixture
def kits(provisioned: Path, tmp_path: Path) -> Path:
    """A copy of the kits, to be changed."""
    return Path(shutil.copytree(provisioned, tmp_path / "kits"))
