"""A job on data that no record describes: a hospital's own images, arrays or texts."""

from collections.abc import Mapping
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.coefficients import default_options
from fedmr_med.jobs.presets import resolve
from fedmr_med.schema import validated

# What a task need not say, and local training to start from.
_TASK = {"dataset": "own", "image_size": 64, "transform": "plain"}
_TRAIN = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "batch_size": 32, "epochs": 1}


def own_job(
    name: str,
    task: Mapping[str, Any],
    method: str,
    model: str,
    *,
    rounds: int = 2,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> JobConfig:
    """Return a job on data of one's own.

    Args:
        name: name of the job.
        task: the task section; ``class_names`` must be there.
        method: name of a method or preset.
        model: name of the network.
        rounds: rounds of the chain.
        seed: seed of the model and all that follows.
        changes: other settings, as :func:`fedmr_med.jobs.changes.change` takes them.

    Raises:
        ConfigError: something is not known or not valid.
    """
    method, preset = resolve(method)
    dataset = str(task.get("dataset", _TASK["dataset"]))
    content = {
        "name": name,
        "task": {**_TASK, **task},
        "model": {"name": model},
        "method": {"name": method, "options": default_options(dataset, None, method, changes or {})},
        "train": _TRAIN,
        "federation": {"rounds": rounds},
        "seed": seed,
    }
    job = validated(JobConfig, content, f"the job {name}").override(dict(preset.settings))
    return change(job, changes or {})
