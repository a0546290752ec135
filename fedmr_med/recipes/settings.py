"""From the arguments of a recipe, which are called as FLARE calls them, to a job and the settings of its sites."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from torch import nn

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.catalog import any_job, job_for, own_job
from fedmr_med.jobs.folder import carried, sites_below
from fedmr_med.schema import validated
from fedmr_med.sites import SiteConfig

Sites = Path | Sequence[str] | Mapping[str, SiteConfig | Mapping[str, Any]]


def job_and_sites(
    task: str | Mapping[str, Any],
    method: str,
    sites: Sites | None,
    *,
    name: str,
    model: Any,
    seed: int,
    demo: bool,
    changes: Mapping[str, Any],
) -> tuple[JobConfig, dict[str, str | None]]:
    """Return the job, and the ``site.yaml`` of its sites as far as it carries them.

    The arguments are those of :class:`fedmr_med.recipes.MethodRecipe`, all other settings in ``changes``.

    Raises:
        ConfigError: something is not known or not valid.
    """
    own, network = site_files(sites) if sites is not None else None, network_of(model)
    if isinstance(model, Mapping):
        changes = {"model.options": dict(model.get("args") or {}), **changes}
    if not isinstance(task, str):
        if network is None:
            raise ConfigError(
                "model: a task of one's own needs the name of a network.", code="config.conflict", key="model"
            )
        return own_job(name, task, method, network, seed=seed, changes=changes), own or {}
    arguments: dict[str, Any] = {"model": network, "changes": changes, "name": name, "seed": seed, "demo": demo}
    if isinstance(sites, Path) or own is None:
        job, files = any_job(task, method, sites=sites if isinstance(sites, Path) else Path("sites"), **arguments)
        return job, dict(files)
    return job_for(task, method, **arguments), own


@contextmanager
def together() -> Iterator[Callable[..., Any]]:
    """Yield what calls a function and keeps its refusal; all of them are raised as one error at the end.

    Raises:
        ConfigError: with the code and the key of the first of them.
    """
    refused: list[ConfigError] = []

    def checked(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ConfigError as e:
            refused.append(e)
            return None

    yield checked
    if len(refused) > 1:
        first, lines = refused[0], "".join(f"\n- {e}" for e in refused)
        raise ConfigError(f"{len(refused)} arguments cannot be used:{lines}", code=first.code, key=first.key)
    if refused:
        raise refused[0]


def script_of(model: Any) -> Path | None:
    """Return the file that has a network's class, where it is a file of the user's own and no installed package."""
    if isinstance(model, nn.Module):
        model = type(model)
    if not inspect.isclass(model):
        return None
    module = _module(model)
    return None if "." in module or module in packages_distributions() else Path(inspect.getfile(model))


def network_of(model: Any) -> str | None:
    """Return the name of a network: a registered one, or the dotted path of its class.

    Raises:
        ConfigError: it is neither, or an instance whose class needs arguments.
    """
    if isinstance(model, nn.Module) and not _needs_arguments(type(model)):
        model = type(model)
    if model is None or isinstance(model, str):
        return model
    if isinstance(model, Mapping) and model.keys() <= {"class_path", "args"} and "class_path" in model:
        return str(model["class_path"])
    if inspect.isclass(model):
        return f"{_module(model)}.{model.__qualname__}"
    raise ConfigError(
        "model: every site builds the network anew. Give its name, its class, an instance of a class that needs no "
        "arguments, or {'class_path': 'package.module.Class', 'args': {...}}.",
        code="config.value",
        key="model",
    )


def _needs_arguments(kind: type) -> bool:
    found = list(inspect.signature(kind).parameters.values())
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found)


def _module(kind: type) -> str:
    """Return the module to import a class from; a script that is running is imported by its file's name."""
    return Path(inspect.getfile(kind)).stem if kind.__module__ == "__main__" else kind.__module__


def site_files(sites: Sites) -> dict[str, str | None]:
    """Return the ``site.yaml`` of each site; None where only names were given.

    Raises:
        ConfigError: settings are not valid, or there are none in the folder.
    """
    if isinstance(sites, Path):
        return dict(sites_below(sites, "sites"))
    if isinstance(sites, Mapping):
        return dict(carried({name: _site(name, content) for name, content in sites.items()}))
    return dict.fromkeys(sites)


def _site(name: str, content: SiteConfig | Mapping[str, Any]) -> SiteConfig:
    return content if isinstance(content, SiteConfig) else validated(SiteConfig, dict(content), f"the site {name}")
