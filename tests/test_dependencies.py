"""What is imported is declared, and what is declared is imported."""

import re
import sys
import tomllib
from typing import Any

from tests.helpers import REPOSITORY
from tests.helpers.imports import sources, third_party

# Packages on PyPI whose import has another name.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "ruamel": "ruamel.yaml",
    "Crypto": "pycryptodome",
}
# Imported where they are given by something that is not on PyPI or not always there.
OPTIONAL = {"flamby"}


def project() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return content


def names(requirements: list[str]) -> set[str]:
    """Return the normalised names of requirements such as ``nvflare>=2.9,<2.10``."""
    found = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-") for requirement in requirements}
    return found - {"fedmr-med"}  # extras that take in others name the project itself


def imported() -> dict[str, set[str]]:
    """Return the distributions that the package imports, each with the modules that do so."""
    found: dict[str, set[str]] = {}
    for module in sources():
        for name in third_party(module, frozenset(sys.stdlib_module_names)) - OPTIONAL:
            found.setdefault(DISTRIBUTIONS.get(name, name).lower().replace("_", "-"), set()).add(module)
    return found


def test_every_import_is_declared() -> None:
    extras = [names(extra) for extra in project()["optional-dependencies"].values()]
    declared = names(project()["dependencies"]).union(*extras)
    assert not {name: users for name, users in imported().items() if name not in declared}


def test_every_declared_dependency_is_imported() -> None:
    assert names(project()["dependencies"]) - imported().keys() == set()


def test_every_declared_dependency_is_pinned() -> None:
    pinned = names([line for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if "==" in line])
    apart = {"flamby", "flower"}  # they ask for other releases of what is pinned, and have environments of their own
    extras = [names(extra) for name, extra in project()["optional-dependencies"].items() if name not in apart]
    assert names(project()["dependencies"]).union(*extras) - pinned == set()
