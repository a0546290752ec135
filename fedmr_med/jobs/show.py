"""A job in full: what it sets, and what it leaves at its default."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from fedmr_med import methods, models
from fedmr_med.config import JobConfig
from fedmr_med.registry import is_dotted


@dataclass(frozen=True)
class ShownJob:
    """All settings of a job, nested like ``fedmr.yaml``; those that it sets, and the others."""

    settings: dict[str, Any]
    set: dict[str, Any]
    defaults: dict[str, Any]


def shown(job: JobConfig) -> ShownJob:
    """Return a job's settings with the defaults of all keys.

    Options of a network that is named by the path of its class are shown as they are written.

    Raises:
        ConfigError: its method, its network or an option does not exist.
    """
    settings = job.model_dump(mode="json")
    settings["method"]["options"] = methods.build(job.method).options.model_dump(mode="json")
    settings["model"]["options"] = _model_defaults(job.model.name) | settings["model"]["options"]
    chosen = job.model_dump(mode="json", exclude_defaults=True)
    return ShownJob(settings, chosen, _without(settings, chosen))


def _model_defaults(name: str) -> dict[str, Any]:
    """Return the options of a network with their defaults; empty for a class that nobody registered."""
    if is_dotted(name):
        return {}
    parameters = inspect.signature(models.MODELS.get(name, "model.name")).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}
    # A package's own builder can have any object for a default.
    plain: dict[str, Any] = to_jsonable_python(own, fallback=repr)
    return plain | {"norm": inspect.signature(models.build).parameters["norm"].default}


def _without(settings: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not chosen, without sections in which all are."""
    rest_of = {}
    for key, value in settings.items():
        if key not in chosen:
            rest_of[key] = value
        elif isinstance(value, dict) and (rest := _without(value, chosen[key])):
            rest_of[key] = rest
    return rest_of
