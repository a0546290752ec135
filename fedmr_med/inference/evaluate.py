"""Judging a model without training it: on one hospital's own images, or by a FLARE job at all sites."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedmr_med.config import JobConfig
from fedmr_med.data.folds import Row
from fedmr_med.data.image_files import ImageFiles
from fedmr_med.data.labels import labels_of
from fedmr_med.data.manifest import read_manifest
from fedmr_med.data.subgroups import of_levels
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.evaluation.catalog import described
from fedmr_med.evaluation.clinical import wilson
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import scored
from fedmr_med.evaluation.results import RunResult
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.inference.predict import Prediction, Predictor
from fedmr_med.models.model_file import SavedModel
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import Strict, check_name
from fedmr_med.server.chain import setup_of
from fedmr_med.sites import ManifestSource, SiteConfig

FoldChoice = Literal["test", "train", "all"]

_EVERYTHING = SitePolicy(
    share_prototypes=True,
    min_class_count=1,
    min_cell_count=1,
    share_metrics="per_class",
    round_samples=1,
    training=None,
)


@dataclass(frozen=True)
class OwnTable:
    """A hospital's labelled images.

    Attributes:
        manifest: the table.
        rows: of the fold that is scored.
        prepared: whether the images went through the model's preparation already.
    """

    manifest: Path
    rows: tuple[Row, ...]
    prepared: bool = False

    @classmethod
    def open(
        cls, place: Path, class_names: tuple[str, ...], fold: FoldChoice = "test", *, prepared: bool = False
    ) -> "OwnTable":
        """Read a manifest, or the ``manifest.csv`` of a folder.

        Raises:
            DataError: it is not there or not valid, or has no image of the fold.
        """
        manifest = place / "manifest.csv" if place.is_dir() else place
        if not manifest.is_file():
            raise DataError(
                f"{manifest} does not exist; `fedmr-med data manifest` makes one from a folder of images.",
                code="file.missing",
            )
        rows = read_manifest(manifest, labels_of(site_of(manifest), class_names))
        chosen = tuple(row for row in rows if fold in ("all", row.fold))
        if not chosen:
            raise DataError(
                f"{manifest} has no image in the {fold} fold; --fold all takes all of them.",
                code="data.empty",
                key="--fold",
            )
        return cls(manifest, chosen, prepared)


def site_of(manifest: Path, *, prepared: bool = False) -> SiteConfig:
    """Return settings of a site that this machine is: nothing of it goes anywhere."""
    source = ManifestSource(
        source="manifest",
        root=manifest.parent,
        manifest=Path(manifest.name),
        allow_shared_groups=True,
        prepared=prepared,
    )
    return SiteConfig(data=source, policy=_EVERYTHING, max_bad_fraction=1)


def evaluate_here(
    saved: SavedModel, table: OwnTable, name: str, coverage: float | None = None
) -> tuple[RunResult, list[Prediction]]:
    """Score a model on labelled images of this machine; return the results, and the prediction for each image.

    Raises:
        CheckpointError: the model has no sets, and a ``coverage`` of them is asked for.
        ConfigError: the site's name is not one, or the model's sets are of other coverages.
        DataError: no image can be read.
    """
    check_name(name, "--site")
    labels = {row.image: row.label for row in table.rows}
    predictor = Predictor(saved, prepared=table.prepared, coverage=coverage)
    found = list(predictor(ImageFiles(table.manifest.parent, tuple(labels))))
    good = [prediction for prediction in found if not prediction.error]
    if not good:
        raise DataError(
            f"none of the {len(found)} images of {table.manifest} can be read ({found[0].error}).",
            code="data.unreadable-images",
        )
    logits = np.stack([prediction.logits for prediction in good])
    truth = np.array([labels[prediction.image] for prediction in good], dtype=np.int64)
    scores, levels = scored(logits, truth), saved.job.task.levels
    evaluation = Evaluation.of(saved.round, {name: scores})
    if levels:
        attributes = {row.image: row.attributes for row in table.rows}
        masks = np.array([of_levels(attributes[prediction.image], levels) for prediction in good])
        parts = [(scored(logits[mask], truth[mask]) if mask.any() else None, (name,)) for mask in masks.T]
        evaluation = evaluation.by_level(levels, parts, scores)
    history = History().with_evaluation(evaluation)
    setup = setup_of(saved.job, "this model", demo=saved.is_demo)
    return RunResult.of(setup, history, whole=True), found


def with_subgroups(saved: SavedModel, options: Sequence[str]) -> SavedModel:
    """Return a model whose job scores by these columns, each as ``COLUMN=LEVEL,...``.

    Raises:
        ConfigError: one is not of that form.
    """
    columns = {}
    for text in options:
        column, equals, levels = text.partition("=")
        columns[column] = [level.strip() for level in levels.split(",")]
        if not (column and equals and all(columns[column])):
            raise ConfigError(f"--subgroup {text}: give COLUMN=LEVEL,LEVEL.", code="config.form", key="--subgroup")
    return replace(saved, job=saved.job.override({"task": {"subgroups": columns}}))


def lines(run: RunResult) -> list[str]:
    """Return the last scores of a run as people read them, a line for each metric."""
    found = run.history.evaluations[-1].pooled_figures if run.history else None
    if found is None:
        return [f"{run.label}: no figures"]
    values = [f"  {described(name).heading}: {found.text(name)}" for name in found.metrics]
    return [f"{run.label}, {found.samples} images", *values]


class SetsHeld(Strict):
    """How often the sets of a model held the right class of labeled images.

    Attributes:
        coverage: what was asked for.
        images, held: of each class that has images: their number, and those whose set holds it.
        one_class: images whose set is one class.
    """

    coverage: float
    images: dict[str, int]
    held: dict[str, int]
    one_class: int

    @classmethod
    def of(cls, predictions: Sequence[Prediction], truth: Mapping[str, str], coverage: float) -> "SetsHeld":
        """Count over predictions with sets; ``truth`` has the class of each image by its name."""
        sets = [(truth[p.image], p.classes) for p in predictions if p.classes is not None]
        images = Counter(name for name, _ in sets)
        held = Counter(name for name, classes in sets if name in classes)
        return cls(
            coverage=coverage,
            images=dict(images),
            held={name: held[name] for name in images},
            one_class=sum(len(classes) == 1 for _, classes in sets),
        )

    def lines(self) -> list[str]:
        """Return the same as people read it, a line for each class, with intervals of 95 %."""
        told = [f"sets of coverage {self.coverage:g}; {self.one_class} of {sum(self.images.values())} are one class"]
        for name, images in self.images.items():
            low, high = wilson(self.held[name], images)
            told.append(f"  {name}: {self.held[name]} of {images} hold it ({low:.2f} to {high:.2f})")
        return told


def evaluation_job(saved: SavedModel, sites: Mapping[str, object]) -> JobConfig:
    """Return a job in which all sites score a model and none trains; it is to carry the model's file.

    ``sites`` are empty where it is not known who is connected.

    Raises:
        CheckpointError: the model is not whole.
    """
    saved.check_whole()
    quorum = {"min_sites": len(sites)} if sites else {}
    changes = {
        "name": f"{saved.job.name}_evaluate",
        "model": {"freeze_backbone": False},
        "train": {"validation": 0.0},
        "federation": {"rounds": 0, "sites_per_round": None, **quorum},
        "head": {"exchange": "none"},
        "chain": None,
    }
    return saved.job.override(changes)
