"""A hospital's process runs without :mod:`fedmr_med.lab`: no attack, benchmark or study can be loaded into it."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_LAB = "fedmr_med.lab"


class _NoLab(MetaPathFinder):
    """Asked before Python's own finders; finds nothing, and refuses what is of the lab."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _of_lab(fullname):
            raise ModuleNotFoundError(f"{fullname} is not for the processes of a hospital", name=fullname)
        return None


def forbid_lab() -> bool:
    """Make every later import of the lab in this process fail.

    Returns:
        Whether none of it had been imported before.
    """
    sys.meta_path.insert(0, _NoLab())
    return not any(_of_lab(name) for name in sys.modules)


def _of_lab(name: str) -> bool:
    return name == _LAB or name.startswith(f"{_LAB}.")
