"""The commands of :mod:`fedmr_med.lab`: the only place of the core that knows of it.

They are listed without it too, and then say how to get it.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer

from fedmr_med.cli import data, privacy
from fedmr_med.errors import ConfigError

INSTALL = "pip install 'fedmr-med[lab]'"
"""How to get what a command of the lab needs."""

_LAB = "fedmr_med.lab"
_MODULES = {
    "bench": "bench",
    "data download": "download",
    "flamby compare": "flamby",
    "paper": "paper",
    "perf": "perf",
    "privacy audit": "privacy",
    "privacy sums": "privacy",
    "robustness": "robustness",
}
"""The module of each command. Its function has the name of the command's last word."""

flamby = typer.Typer(no_args_is_help=True)


@flamby.callback()
def _group() -> None:
    """Compare with FLamby."""


def add_commands(app: typer.Typer) -> None:
    """Add the commands of the lab to the command line and its groups."""
    groups = {"": app, "data": data.app, "privacy": privacy.app, "flamby": flamby}
    installed = find_spec(_LAB) is not None
    for command, module in _MODULES.items():
        group, _, name = command.rpartition(" ")
        if installed:
            function = getattr(import_module(f"{_LAB}.cli.{module}"), name)
            groups[group].command(name)(_with_advice(function, command))
        else:
            taking_anything = {"ignore_unknown_options": True, "allow_extra_args": True}
            groups[group].command(name, context_settings=taking_anything)(_absent(command))


def _with_advice(function: Callable[..., None], command: str) -> Callable[..., None]:
    """Return the command, which says how to get a package that it does not find."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except ModuleNotFoundError as e:
            raise ConfigError(f"{command} needs the package {e.name}: {INSTALL}", code="lab.missing") from e

    return run


def _absent(command: str) -> Callable[[], None]:
    def run() -> None:
        raise ConfigError(f"{command} needs {_LAB}, which is not installed: {INSTALL}", code="lab.missing")

    run.__doc__ = f"Not installed: {INSTALL}"
    return run
