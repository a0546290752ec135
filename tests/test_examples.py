"""Every example runs as its docstring says, and prints what it promises."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
SCRIPTS = ["round 2: site-1 shared a b", "round 2: site-2 shared no class"]
PRINTS = {
    "client_script": SCRIPTS,
    "lightning_script": SCRIPTS,
    "federation": ["3 rounds done", "msk            sent 0.5 MB, prototypes of no class", "after 3 rounds:"],
    "new_method": ["fedavg ", "fedavgm "],
    "flower_simulation": ["carried by Flower", "the same model to the bit: True"],
    "own_training_loop": ["with FedMR's two losses    0.0%"],
}


MARKS = {
    "client_script": pytest.mark.nightly,
    "lightning_script": pytest.mark.nightly,
    "flower_simulation": pytest.mark.skipif(find_spec("flwr") is None, reason="the extra flower is not installed"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [pytest.param(path, marks=MARKS.get(path.stem, ()), id=path.stem) for path in EXAMPLES]
)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    """From another folder, as a user would start it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in PRINTS[script.stem]:
        assert text in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_to_start_it_and_is_listed(script: Path) -> None:
    docstring = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert f"python examples/{script.name}" in docstring
    assert f"({script.name})" in (script.parent / "README.md").read_text()
