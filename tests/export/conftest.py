from pathlib import Path

import pytest

from tests.helpers.models import small_run, some_pictures


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="package")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some_pictures(tmp_path_factory.mktemp("pictures"))
