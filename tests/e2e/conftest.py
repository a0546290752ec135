"""One federation for all scenarios."""

from collections.abc import Iterator

import pytest

from tests.helpers.federation import Federation, demo_site, wait_for

OPTED_OUT = "share_prototypes: false, share_metrics: none"


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server and three hospitals; msk has opted out of prototypes and metrics."""
    sites = {
        "msk": demo_site("msk", OPTED_OUT),
        "rosendahl": demo_site("rosendahl"),
        "vienna-dias": demo_site("vienna-dias"),
    }
    running = Federation(tmp_path_factory.mktemp("federation"), sites)
    try:
        running.start()
        for name in sites:
            wait_for(lambda name=name: running.logins(name), f"{name} has registered with the server")
        yield running
    finally:
        running.stop()
