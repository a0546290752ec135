"""``import fedmr_med``: cheap, and every public name is there."""

import ast
import subprocess
import sys

import pytest

import fedmr_med
from tests.helpers.imports import PACKAGE, sources


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = run("import fedmr_med, sys; print(dir(fedmr_med)); print(*sys.modules)").split()
    heavy = ("torch", "nvflare", "numpy", "pydantic", "monai", "albumentations")
    assert not {name for name in loaded if name.split(".")[0] in heavy}


@pytest.mark.parametrize("name", fedmr_med.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(fedmr_med, name) is not None
    assert name in dir(fedmr_med)


@pytest.mark.slow
def test_a_name_works_in_a_fresh_process_and_is_the_same_as_at_home() -> None:
    code = (
        "import fedmr_med; policy = fedmr_med.SitePolicy; from fedmr_med import Federation, methods; "
        "from fedmr_med.privacy.policy import SitePolicy; from fedmr_med.runner import Federation as same; "
        "print(policy is SitePolicy, Federation is same, 'fedmr' in fedmr_med.methods.available())"
    )
    assert run(code).split() == ["True"] * 3


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"fedmr_med.*has no attribute 'FedXYZ'"):
        fedmr_med.FedXYZ  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(sources()[PACKAGE].read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen | {"__version__"} == set(fedmr_med.__all__)
