"""One federation for all scenarios."""

from collections.abc import Iterator

import pytest

from tests.helpers.federation import OPTED_OUT, Federation, demo_site, running


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server and three hospitals; msk has opted out of prototypes and metrics."""
    sites = {
        "msk": demo_site("msk", OPTED_OUT),
        "rosendahl": demo_site("rosendahl"),
        "vienna-dias": demo_site("vienna-dias"),
    }
    with running(tmp_path_factory.mktemp("federation"), sites) as federation:
        yield federation


@pytest.fixture(autouse=True)
def no_fault_stays_armed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails must not hold up the ones after it."""
    yield
    if "federation" in request.fixturenames:
        request.getfixturevalue("federation").release_all()
