"""One way to find a method, a network, a dataset or any other exchangeable part by its name.

Parts of this package are registered where they are defined. A user's own package adds more without a fork, by an entry
point in its ``pyproject.toml``::

    [project.entry-points."fedmr_med.methods"]
    fedours = "my_package.fedours:FedOurs"

The groups are ``fedmr_med.methods``, ``models``, ``datasets``, ``metrics``, ``sources``, ``readers`` and ``policy``;
:mod:`fedmr_med.lab` uses them too. Listing names reads the metadata of the installed packages and runs none of their
code: a part is imported when it is asked for by its name, so what nobody uses is never loaded, and there is nothing to
switch off. Only metrics and policy keys are asked for by being installed. Whoever installs a package at a site decides
about its code; a job can only name what is installed there. A name is taken once: no package can replace a part of this
one.

Without a package, a part can be registered in a file of one's own that :data:`PLUGINS_VARIABLE` names, as the option
``--plugin FILE`` of the command line does. Such a file is run when a name is asked for that is not known otherwise.

A network can also be named by the dotted path of its class. Nobody has registered that, so server and sites of a
provisioned federation take it only where their class list has it: see :mod:`fedmr_med.flare.context`. A site's own
``site.yaml`` can name a factory of its data in the same way.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedmr_med.errors import ConfigError

T = TypeVar("T")

PLUGINS_VARIABLE = "FEDMR_MED_PLUGINS"
"""Names Python files that register parts, separated as in ``PATH``. Processes that this one starts load them too."""


def load_plugins() -> None:
    """Run the files of :data:`PLUGINS_VARIABLE`, each once in a process; raise ConfigError if one does not load."""
    for path in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        name = f"fedmr_med_plugin_{Path(path).stem}"
        if name in sys.modules:
            continue
        spec = spec_from_file_location(name, path)
        with _loading(path, "--plugin"):
            if spec is None or spec.loader is None:
                raise ImportError("it is no Python file")
            sys.modules[name] = module = module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[name]
                raise


@contextmanager
def _loading(what: str, key: str) -> Iterator[None]:
    """Say in a ConfigError that ``what`` does not load, whatever its own code raises."""
    try:
        yield
    except Exception as e:
        reason = f"{type(e).__name__}: {e}".splitlines()[0]
        raise ConfigError(f"{what} does not load ({reason}).", code="registry.does-not-load", key=key) from e


class Registry(Generic[T]):
    """Parts of one kind by name, in the order they were registered; those of other packages come last.

    Args:
        kind: what the parts are, for messages: "method".
        group: entry points to look for; None takes no parts from other packages.
        fits: whether what an entry point of a given name leads to is such a part.
        dotted: whether what ``package.module.name`` leads to may stand for a part as well; None takes registered
            names only.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str | None = None,
        fits: Callable[[str, Any], bool] = lambda name, item: True,
        dotted: Callable[[Any], bool] | None = None,
    ):
        self.kind = kind
        self._dotted = dotted
        self.group = group
        self._fits = fits
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> T:
        """Register a part and return it. The same definition made again, as in a notebook, replaces the old one.

        Raises:
            ConfigError: the name is taken by another part.
        """
        if name in self._items and not _same(self._items[name], item):
            raise ConfigError(
                f"There is a {self.kind} {name!r} already; choose another name.", code="registry.name-taken", key=name
            )
        self._items[name] = item
        return item

    def names(self) -> tuple[str, ...]:
        """Return all names, without loading anything of installed packages.

        Raises:
            ConfigError: an installed package uses a name that is taken, or a plugin does not load.
        """
        load_plugins()
        return (*(name for name in self._items if name not in self._installed), *self._installed)

    def get(self, name: str, where: str | None = None) -> T:
        """Return a part by name; ``where`` is the key or option that asks for it, for the message.

        Raises:
            ConfigError: there is no such part, or the package that has it does not load.
        """
        if self._dotted is not None and is_dotted(name):
            return self._imported(name, where or self.kind)
        if name not in self._items:
            check_known(name, self.names(), where or self.kind)
        if name not in self._items:  # a plugin may have registered it meanwhile
            self.add(name, self._load(self._installed[name]))
        return self._items[name]

    def __contains__(self, name: str) -> bool:
        return name in self._items or name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages by name, read once."""
        found: dict[str, EntryPoint] = {}
        points = entry_points(group=self.group) if self.group else ()
        for point in sorted(points, key=lambda point: point.name):
            # A package may register a part itself as well; only then is code loaded here, which has been before.
            known = point.name in self._items and _same(self._items[point.name], self._load(point))
            if not known and point.name in self._items.keys() | found.keys():
                raise ConfigError(
                    f"{_package(point)} has a {self.kind} {point.name!r}, a name that is taken.",
                    code="registry.name-taken",
                    key=point.name,
                )
            found[point.name] = point
        return found

    def _load(self, point: EntryPoint) -> T:
        with _loading(f"{self.kind} {point.name!r} of {_package(point)}", point.name):
            item: T = point.load()
        if not self._fits(point.name, item):
            raise ConfigError(
                f"{point.value} of {_package(point)} is not a {self.kind} named {point.name!r}.",
                code="registry.wrong-kind",
                key=point.name,
            )
        return item

    def _imported(self, path: str, where: str) -> T:
        module, _, attribute = path.rpartition(".")
        with _loading(f"{where}: {path}", where):
            item: T = getattr(import_module(module), attribute)
        if self._dotted is None or not self._dotted(item):
            raise ConfigError(f"{where}: {path} is not a {self.kind}.", code="registry.wrong-kind", key=where)
        return item


def check_known(name: str, known: Collection[str], where: str) -> None:
    """Refuse a name that is none of those there are; ``where`` is the key or option that asks for it.

    Raises:
        ConfigError: the name is none of them; the message says which is nearest.
    """
    if name not in known:
        near = "".join(f" Did you mean {other}?" for other in get_close_matches(name, known, n=1))
        raise ConfigError(
            f"{where}: {name!r} is not one of {', '.join(known)}.{near}", code="config.unknown-name", key=where
        )


def is_dotted(name: str) -> bool:
    """Whether a name is the dotted path of a class."""
    return "." in name and all(part.isidentifier() for part in name.split("."))


def _same(one: object, other: object) -> bool:
    """Whether two parts are equal, or the same definition made twice; of a record, each of its fields."""
    if one == other or (_address(one) is not None and _address(one) == _address(other)):
        return True
    if not is_dataclass(one) or type(one) is not type(other):
        return False
    return all(_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))


def _address(item: object) -> tuple[str, str] | None:
    """Return file and name of a class or function; None for anything else.

    The file and not the module: a script is a module of another name when it is imported as well.
    """
    name = getattr(item, "__qualname__", None)
    return (getattr(sys.modules.get(item.__module__), "__file__", None) or item.__module__, name) if name else None


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist else "a package"
