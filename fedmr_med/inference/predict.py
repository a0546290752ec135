"""A model's answers for single images, as a table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fedmr_med.data.image_files import ImageFiles, ImageReader, find_images
from fedmr_med.data.tables import table_text
from fedmr_med.evaluation.clinical import softmax
from fedmr_med.evaluation.sets import sets_of
from fedmr_med.files import write_text
from fedmr_med.models import model_file
from fedmr_med.models.model_file import SavedModel
from fedmr_med.network import Network

UNSURE = "unsure"
"""What stands in the place of a diagnosis where a set is not one class."""


class Logits(nn.Module):
    """A network of this toolkit as one whose output is the logits alone."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, C) of images (n, channels, h, w)."""
        logits: torch.Tensor = self.network(x)[1]
        return logits


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image.

    Attributes:
        image: name of the file.
        logits: (C,) the model's own output; empty for an image that cannot be read.
        probabilities: (C,) from the logits, calibrated if asked.
        nearest: names of the classes by the similarity of the image's features to their prototypes, the most similar
            first; empty where the model has none.
        error: why the image cannot be read, or "".
        classes: names of the classes in its set, which may be none; None where no coverage was asked for.
    """

    image: str
    logits: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    probabilities: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    nearest: tuple[str, ...] = ()
    error: str = ""
    classes: tuple[str, ...] | None = None

    @property
    def diagnosis(self) -> str:
        """The class of a set of one, else :data:`UNSURE`; "" where there is no set."""
        if self.classes is None:
            return ""
        return self.classes[0] if len(self.classes) == 1 else UNSURE


class Predictor:
    """A model that is ready to answer.

    Attributes:
        temperature: what logits are divided by; 1 without calibration.
        everywhere: the classes that are in every set, as too few of their scores left the sites.

    Args:
        saved: the model file's content.
        calibrated: whether to divide logits by the model's own temperature, where it has one.
        prepared: whether images went through the model's preparation already.
        coverage: how often an image's set of classes is to hold the right one; None makes no sets.

    Raises:
        CheckpointError: the model file cannot be used, its model is not whole, or it has no thresholds for sets.
        ConfigError: its thresholds are of other coverages.
    """

    def __init__(
        self, saved: SavedModel, *, calibrated: bool = True, prepared: bool = False, coverage: float | None = None
    ):
        self.saved = saved
        self.class_names = saved.job.task.class_names
        self.temperature = (saved.temperature or 1.0) if calibrated else 1.0
        self.network = saved.network()
        self.preparation = ImageReader(saved.job.task, prepared)
        self._prototypes = saved.prototypes
        self._least = None if coverage is None else saved.set_thresholds(coverage)
        self.everywhere = () if self._least is None else self._named(self._least == 0)

    def predict(self, images: Path | str) -> list[Prediction]:
        """Answer for a folder of images, the images of a manifest, or one image; DICOM too.

        Raises:
            DataError: there is no image.
        """
        return list(self(find_images(Path(images))))

    def __call__(self, place: ImageFiles) -> Iterator[Prediction]:
        """Answer for every image, in order; one that cannot be read has its reason instead."""
        for names, images, errors in self.preparation.batches(place.root, place.names):
            answers = {name: Prediction(name, error=error) for name, error in errors.items()}
            if images is not None:
                answers |= self._answers(names, images)
            yield from (answers[name] for name in place.names if name in answers)

    @torch.no_grad()
    def _answers(self, names: list[str], images: torch.Tensor) -> dict[str, Prediction]:
        features, logits = self.network(images)
        exact = logits.double().numpy()
        probabilities = softmax(exact / self.temperature)
        nearest = self._nearest(features)
        sets = None if self._least is None else [self._named(inside) for inside in sets_of(exact, self._least)]
        return {
            name: Prediction(
                name, exact[row], probabilities[row], nearest[row], classes=None if sets is None else sets[row]
            )
            for row, name in enumerate(names)
        }

    def _named(self, mask: npt.NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.class_names[label] for label in np.flatnonzero(mask))

    def _nearest(self, features: torch.Tensor) -> list[tuple[str, ...]]:
        if self._prototypes is None:
            return [()] * len(features)
        known = self._prototypes.available.nonzero().flatten()
        likeness = F.normalize(features.float()) @ F.normalize(self._prototypes.means[known].float()).T
        order = known[likeness.argsort(dim=1, descending=True)]
        return [tuple(self.class_names[label] for label in row) for row in order.tolist()]


def load_model(
    path: Path | str, *, allow_code: bool = False, calibrated: bool = True, prepared: bool = False
) -> Predictor:
    """Read a model file, such as ``best_model.pt``, and return the model ready to answer.

    Args:
        allow_code: build a network that the file names by a dotted path, which runs that code.
        calibrated, prepared: see :class:`Predictor`.

    Raises:
        FedMRError: see :func:`fedmr_med.models.model_file.load_model`.
    """
    saved = model_file.load_model(Path(path), allow_code=allow_code)
    return Predictor(saved, calibrated=calibrated, prepared=prepared)


def write_predictions(
    path: Path, predictions: Iterable[Prediction], class_names: tuple[str, ...], *, logits: bool = False
) -> list[Prediction]:
    """Write a table of predictions and return those that failed.

    A file's name that a spreadsheet would take for a formula has an apostrophe before it.
    Columns: image, answer, ``p_CLASS`` per class, nearest (separated by spaces), error, ``logit_CLASS`` if asked, and
    diagnosis and set (separated by spaces) where predictions have sets.
    """
    predictions = list(predictions)
    raw = [f"logit_{name}" for name in class_names] if logits else []
    sets = ["diagnosis", "set"] if any(prediction.classes is not None for prediction in predictions) else []
    columns = ["image", "answer", *(f"p_{name}" for name in class_names), "nearest", "error", *raw, *sets]
    failed: list[Prediction] = []
    rows: list[list[str]] = []
    for prediction in predictions:
        cells = {"image": _text(prediction.image), "error": _text(prediction.error)}
        if prediction.error:
            failed.append(prediction)
        else:
            cells["answer"] = class_names[int(prediction.probabilities.argmax())]
            cells["nearest"] = " ".join(prediction.nearest)
            cells |= {"diagnosis": prediction.diagnosis, "set": " ".join(prediction.classes or ())}
            for name, share, logit in zip(class_names, prediction.probabilities, prediction.logits, strict=True):
                cells |= {f"p_{name}": f"{share:.6f}", f"logit_{name}": repr(float(logit))}
        rows.append([cells.get(column, "") for column in columns])
    write_text(path, table_text(columns, rows))
    return failed


def _text(value: str) -> str:
    """Return a text that no spreadsheet runs: the names of files come from elsewhere."""
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
