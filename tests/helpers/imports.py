"""What the modules of the package import, read from their source: nothing is run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.helpers import REPOSITORY

PACKAGE = "fedmr_med"


@cache
def sources() -> dict[str, Path]:
    """Return the file of every module by its dotted name; a package's is its ``__init__.py``."""
    files = {}
    for path in sorted((REPOSITORY / PACKAGE).rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def imports(module: str) -> frozenset[str]:
    """Return the dotted names a module imports anywhere: at the top, in a function, under ``TYPE_CHECKING``.

    ``from fedmr_med.data import cache`` counts as ``fedmr_med.data.cache`` where that is a module, and as
    ``fedmr_med.data`` where it is a name in one.
    """
    return frozenset(_imports(ast.parse(sources()[module].read_text(encoding="utf-8"))))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports are absolute in this package"
            assert node.level == 0, "imports are absolute in this package"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in sources() else node.module


def third_party(module: str, standard: frozenset[str]) -> set[str]:
    """Return the top-level names of other packages that a module imports."""
    return {name.split(".")[0] for name in imports(module)} - standard - {PACKAGE}


def room(module: str) -> str:
    """Return the package or root module that a module of ours belongs to: ``data``, ``losses``; itself for the root.

    The packages of the lab are rooms of their own: ``lab.bench``.
    """
    parts = module.split(".")
    return ".".join(parts[1:3] if parts[1:2] == ["lab"] else parts[1:2]) or PACKAGE
