"""The documentation builds without a warning, and without the network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import REPOSITORY

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings_handlers.python")


def test_the_documentation_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "security" / "index.html").is_file()
    losses = (tmp_path / "api" / "modules" / "index.html").read_text()
    assert "Keep a margin to the global prototypes" in losses
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]
    assert not [page for page in pages if ":func:<" in page or ":class:<" in page], "roles that Markdown does not know"
    packages = {path.parent.name for path in (REPOSITORY / "fedmr_med").glob("*/__init__.py")}
    assert packages <= {path.parent.name for path in (tmp_path / "api").glob("*/index.html")}
    assert not [page for page in pages if 'src="http' in page], "no script or picture from elsewhere"
