"""Other settings for a job: what ``--set key=value`` means."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fedmr_med import methods, models
from fedmr_med.config import JobConfig, MethodConfig
from fedmr_med.data.transforms import normalisation
from fedmr_med.errors import ConfigError
from fedmr_med.site.criterion import LOSSES
from fedmr_med.site.optim import OPTIMIZERS


def parse_settings(settings: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Read ``key=value`` pairs, as given for an option, the values as YAML.

    Raises:
        ConfigError: one is not of that form.
    """
    parsed = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(
                f"{option} {text}: give key=value, such as train.lr=0.05.", code="config.form", key=option
            )
        try:
            parsed[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as e:
            raise ConfigError(f"{option} {text}: {value!r} is not a value.", code="config.form", key=option) from e
    return parsed


def in_sections(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted key as sections in sections."""
    sections: dict[str, Any] = {}
    for key, value in changes.items():
        *parents, last = key.split(".")
        section = sections
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return sections


def change(job: JobConfig, changes: Mapping[str, Any]) -> JobConfig:
    """Return a job with other settings.

    A key is dotted (``train.lr``), or an option of the job's method (``mu1``, ``fedmr.mu1``, ``logits.tau``). An option
    of another method changes nothing, so that one list of changes serves several methods.

    Raises:
        ConfigError: a key does not exist or a value is not valid.
    """
    options = method_options(job.method.name)
    flat: dict[str, Any] = {}
    for key, value in changes.items():
        first, _, rest = key.partition(".")
        if first in methods.available() and rest:
            if rest.partition(".")[0] not in method_options(first):
                raise ConfigError(
                    f"{key}: {first} has no option {rest!r} ({', '.join(method_options(first))}).",
                    code="config.unknown-key",
                    key=key,
                )
            if first == job.method.name:
                flat[f"method.options.{rest}"] = value
        elif first in options:
            flat[f"method.options.{key}"] = value
        elif not any(first in method_options(name) for name in methods.available()):
            flat[key] = value
    nested = in_sections(flat)
    budget = nested.get("train", {})
    if budget.get("updates") and "epochs" not in budget:
        nested["train"]["epochs"] = None  # a job has one of the two
    # An override leaves out the demo's own settings; they stay, on top of the changed ones.
    changed = job.override(nested).model_copy(update={"demo": job.demo})
    for effective in (changed, changed.for_demo()):
        check_names(effective)
    return changed


def check_names(job: JobConfig) -> None:
    """Refuse a job that names a method, network, transform, loss or optimiser that does not exist, or does not fit.

    Raises:
        ConfigError: with the key and the names there are.
    """
    methods.build(job.method)
    models.MODELS.get(job.model.name, "model.name")
    normalisation(job.task.transform, job.task.channels)
    LOSSES.get(job.loss.name, "loss.name")
    OPTIMIZERS.get(job.train.optimizer, "train.optimizer")


def method_options(method: str) -> tuple[str, ...]:
    """Return the names of a method's options; raise ConfigError if there is no such method."""
    return tuple(type(methods.build(MethodConfig(name=method)).options).model_fields)
