import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.models import small_run, some_pictures

MONAI = ("-m", "monai.bundle")


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="package")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some_pictures(tmp_path_factory.mktemp("pictures"))


def python(bundle: Path, *arguments: str) -> None:
    """Run Python in a bundle, as its users do."""
    done = subprocess.run([sys.executable, *arguments], cwd=bundle, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
