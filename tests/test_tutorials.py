"""Every tutorial runs as it is, and is listed; tests/e2e/test_recipes.py runs the one on recipes."""

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import REPOSITORY

FOLDER = REPOSITORY / "docs" / "tutorials"
NOTEBOOKS = {
    "first_federation": [r"FedMR, one opts out +0\.\d\d", r"MEL-1\.png MEL"],
    "my_images": ["after 3 rounds: balanced accuracy", "south shared the prototypes of stripes, square", r"0\.png "],
    "compare_methods": [r"fedmr \(\w+\) +seed 1: 0\.\d+", "6 runs, 18 rounds"],
}


def cells(name: str) -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.nightly) if name != "my_images" else name
                                  for name in NOTEBOOKS])  # fmt: skip
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(said):
        for cell in cells(name):
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    for pattern in NOTEBOOKS[name]:
        assert re.search(pattern, said.getvalue()), said.getvalue()


def test_notebooks_are_kept_without_what_they_printed() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)
    for name in NOTEBOOKS:
        code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
        assert code
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
def test_the_script_on_flamby_runs(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(FOLDER / "inside_flamby.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FedMR: 0." in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_says_how_to_start_it(script: Path) -> None:
    docstring = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert f"python docs/tutorials/{script.name}" in docstring


def test_every_tutorial_is_listed_and_the_list_names_files_that_exist() -> None:
    targets = set(re.findall(r"\]\(([^)]+)\)", (FOLDER / "README.md").read_text()))
    assert {path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".ipynb")} <= targets
    for target in targets:
        assert (FOLDER / target).exists(), target
