"""Whether one model is better than another: on a hospital's own images, or at all sites."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmr_med.arrays import Arrays
from fedmr_med.config import PAIR, JobConfig
from fedmr_med.data.base import Fold, units
from fedmr_med.errors import CheckpointError, ConfigError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.pairs import PairRecord, Pairs
from fedmr_med.evaluation.results import RunResult
from fedmr_med.inference.evaluate import OwnTable, evaluate_here, evaluation_job
from fedmr_med.inference.predict import Prediction
from fedmr_med.models import build, load_arrays
from fedmr_med.models.model_file import SavedModel
from fedmr_med.models.pair import FIRST, SECOND

_ALIKE = ("class_names", "image_size", "channels", "transform", "preparation")


def check_pair(first: SavedModel, second: SavedModel) -> None:
    """Return if two models can answer for the same images.

    Raises:
        ConfigError: their tasks differ.
    """
    for key in _ALIKE:
        if getattr(first.job.task, key) != getattr(second.job.task, key):
            raise ConfigError(
                f"The two models differ in task.{key}, so they do not see the same images.",
                code="config.conflict",
                key="--against",
            )


def pair_job(first: SavedModel, second: SavedModel, sites: Mapping[str, object]) -> tuple[JobConfig, Arrays]:
    """Return a job in which all sites compare two models, and the arrays that it is to carry.

    Raises:
        ConfigError: their tasks differ, or a model is more than its network.
        CheckpointError: a model is not whole.
    """
    check_pair(first, second)
    told, arrays = {}, dict[str, np.ndarray]()
    for name, saved in ((FIRST, first), (SECOND, second)):
        saved.check_whole()
        task, model = saved.job.task, saved.job.model
        options = {key: value for key, value in model.options.items() if key != "pretrained"}
        told[name] = {"name": model.name, "options": options}
        network = build(model.name, num_classes=task.num_classes, in_channels=task.channels, **options)
        try:
            load_arrays(network, saved.model)
        except CheckpointError as e:
            raise _more_than_a_network(saved) from e
        if model.views != "plain":
            raise _more_than_a_network(saved)
        arrays |= {f"{name}.{key}": array for key, array in saved.model.items()}
    changes = {
        "name": f"{first.job.name}_against",
        "model": {"name": PAIR, "options": told},
        "method": {"name": "fedavg", "options": {}},
    }
    return evaluation_job(first, sites).override(changes), arrays


def against_here(
    run: RunResult,
    predictions: Sequence[Prediction],
    first: SavedModel,
    second: SavedModel,
    table: OwnTable,
    name: str,
) -> tuple[RunResult, RunResult]:
    """Return the results of the first model with how it compares to the second, and those of the second.

    Args:
        run, predictions: of the first model on the images of ``table``.

    Raises:
        ConfigError: the tasks of the models differ.
    """
    check_pair(first, second)
    other, others = evaluate_here(second, table, name)
    said = [{p.image: int(p.logits.argmax()) for p in found if not p.error} for found in (predictions, others)]
    rows = [row for row in table.rows if all(row.image in known for known in said)]
    labels = np.array([row.label for row in rows], dtype=np.int64)
    mine, theirs = (np.array([known[row.image] for row in rows], dtype=np.int64) for known in said)
    groups = tuple(row.group for row in rows)
    patients = units(Fold(labels, labels, groups)) if any(groups) else None
    record = PairRecord.of(Pairs.of(mine, theirs, labels, first.job.task.num_classes, patients), (name,))
    history = run.history or History()
    *before, last = history.evaluations
    evaluations = (*before, last.model_copy(update={"against": record}))
    compared = run.model_copy(update={"history": history.model_copy(update={"evaluations": evaluations})})
    return compared, other.model_copy(update={"label": "the other model"})


def _more_than_a_network(saved: SavedModel) -> ConfigError:
    return ConfigError(
        f"The model of {saved.job.method.name} is more than its network {saved.job.model.name}: compare it on a "
        "hospital's own images, without --job.",
        code="config.conflict",
        key="--against",
    )
