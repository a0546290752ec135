"""Which tests can kill a mutant: the tests mirror the package, and say by their imports what else they are about."""

import ast
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path


def module_name(module: str) -> str:
    """Return the dotted name of a module, given its path."""
    return ".".join(Path(module).with_suffix("").parts).removesuffix(".__init__")


class Covering:
    """The tests of a repository, by the module they are about.

    Args:
        repository: folder with the package and ``tests``.
    """

    def __init__(self, repository: Path):
        self.repository = repository

    def tests(self, module: str) -> list[list[str]]:
        """Return the files of tests of a module, in steps, the likeliest first.

        These are its own file, the others of the folder that mirrors its package, and those that import it.
        """
        below, name = Path(*Path(module).parts[1:-1]), f"test_{Path(module).stem}.py"
        folders = [parent for parent in (below, *below.parents) if parent.parts and (self._tests / parent).is_dir()]
        beside = sorted((self._tests / folders[0]).rglob("test_*.py")) if folders else []
        own = [file for file in (*beside, self._tests / below / name) if file.name == name and file.exists()]
        importing = [file for file, names in self._imports.items() if module_name(module) in names]
        steps, seen = [], set[Path]()
        for files in (own, beside, importing):
            steps.append([str(file.relative_to(self.repository)) for file in dict.fromkeys(files) if file not in seen])
            seen |= set(files)
        return [step for step in steps if step]

    def digest(self, module: str) -> str:
        """Return what changes with the module or its tests."""
        files = [module, *chain.from_iterable(self.tests(module))]
        return sha256(b"".join((self.repository / file).read_bytes() for file in files)).hexdigest()[:16]

    @property
    def _tests(self) -> Path:
        return self.repository / "tests"

    @cached_property
    def _imports(self) -> dict[Path, set[str]]:
        """The modules that each file of tests imports, and the names it takes from them."""
        result = {}
        for file in sorted(self._tests.rglob("test_*.py")):
            names: set[str] = set()
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            result[file] = names
        return result
