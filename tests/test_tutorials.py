"""Every tutorial runs as its docstring says, and is listed; tests/e2e/test_recipes.py runs the one on recipes."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import REPOSITORY

FOLDER = REPOSITORY / "docs" / "tutorials"
PRINTS = {
    "own_images": ["after 3 rounds:", "south shared the prototypes of stripes, square", "the model: run/best_model.pt"],
    "inside_flamby": ["FedMR: 0."],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTS)
def test_a_tutorial_runs(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in PRINTS[name]:
        assert text in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_tutorial_says_how_to_start_it_and_is_listed(script: Path) -> None:
    docstring = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert f"python docs/tutorials/{script.name}" in docstring
    assert f"({script.name})" in (FOLDER / "README.md").read_text()


def test_the_list_names_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", (FOLDER / "README.md").read_text()):
        assert (FOLDER / target).exists(), target
