"""docs/python.md does what it says: its blocks run one after the other."""

import contextlib
import io
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import REPOSITORY


@pytest.mark.slow
def test_the_page_on_python_runs(fmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    # One round of the demo, which takes a minute and a half, and the images that the small dataset of the tests has.
    for told, small in (('fm.demo("fedmr-demo")', 'fm.demo("fedmr-demo", rounds=1)'), ("fraction=0.05", "fraction=1")):
        assert told in page
        page = page.replace(told, small)
    demo, model, comparison, table, report = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(fmnist, "data/fmnist")
    names: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in (demo, model, comparison):
            exec(block, names)
    lines = said.getvalue().splitlines()
    assert "FedMR" in lines[0]
    assert len([line for line in lines if ".png " in line]) == 12
    assert [line.split()[0] for line in lines[-4:]] == ["fedavg", "fedavg", "fedmr", "fedmr"]
    exec(report, names)
    assert "fedmr" in Path("report.html").read_text(encoding="utf-8")
    if find_spec("pandas"):
        exec(table, names)
        assert len(names["runs"]) == 4
