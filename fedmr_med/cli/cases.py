"""A page of single cases: the image, where the network looked, and what it answered. It holds images: it stays here."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from fedmr_med.errors import FedMRError
from fedmr_med.files import write_text
from fedmr_med.inference.gradcam import GradCam, Picture, seen
from fedmr_med.inference.predict import Prediction, Predictor
from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import Section, join, paragraph

MOST = 60
"""Cases on a page."""

_SHOWN = 3  # most probable classes
_LOOKED = (
    "The colored image shows where the network looked: red supports its answer. That is exact for networks that end in "
    "mean pooling and one linear layer, such as EfficientNet, and a hint for others."
)
_STAYS = "This page holds images of patients. Keep it in the hospital."


def write_missed(
    path: Path, predictor: Predictor, root: Path, predictions: Iterable[Prediction], truth: Mapping[str, str]
) -> int:
    """Write which images below ``root`` a model got wrong, those first of which it was surest; return their number."""
    names = predictor.class_names
    missed = [p for p in predictions if not p.error and names[int(p.probabilities.argmax())] != truth[p.image]]
    missed.sort(key=lambda p: -float(p.probabilities.max()))
    said = f"{len(missed)} images were answered wrongly; those first of which the model was surest."
    _write(path, "Missed cases", said, predictor, root, missed, truth)
    return len(missed)


def write_cases(path: Path, predictor: Predictor, root: Path, predictions: Iterable[Prediction]) -> None:
    """Write what a model answered for images, those first of which it was least sure."""
    readable = sorted((p for p in predictions if not p.error), key=lambda p: float(p.probabilities.max()))
    said = f"{len(readable)} images; those first of which the model is least sure."
    _write(path, "Predictions", said, predictor, root, readable, {})


def _write(
    path: Path,
    title: str,
    said: str,
    predictor: Predictor,
    root: Path,
    predictions: Sequence[Prediction],
    truth: Mapping[str, str],
) -> None:
    try:
        look: GradCam | None = GradCam(predictor)
    except FedMRError:  # the network has no convolution: the images alone
        look = None
    cases = [_case(p, predictor, root / p.image, look, truth.get(p.image)) for p in predictions[:MOST]]
    looked = f" {_LOOKED}" if look else ""
    shown = f" The first {MOST} are shown." if len(predictions) > MOST else ""
    body = join([
        paragraph(_STAYS, "loud"),
        paragraph(f"{said}{shown}{looked}"),
        Markup('<div class="cases">{}</div>').format(join(cases)),
    ])  # fmt: skip
    write_text(path, page_of([Part("cases", title, predictor.saved.is_demo, (Section("cases", title, body),))]))


def _case(prediction: Prediction, predictor: Predictor, path: Path, look: GradCam | None, truth: str | None) -> Markup:
    names, likely = predictor.class_names, prediction.probabilities
    pictures = look(path) if look else (seen(predictor.preparation(path).numpy()),)
    order = (-likely).argsort()[:_SHOWN]
    answers = " · ".join(f"{names[label]} {likely[label]:.2f}" for label in order)
    images = Markup("").join(Markup('<img src="{}" alt="">').format(_address(picture)) for picture in pictures)
    known = Markup("<br>is {}").format(truth) if truth else Markup("")
    if prediction.classes is not None:
        known += Markup("<br>{}: {{{}}}").format(prediction.diagnosis, ", ".join(prediction.classes))
    return Markup("<figure>{}<figcaption><strong>{}</strong>{}<br>{}</figcaption></figure>").format(
        images, answers, known, prediction.image
    )


def _address(picture: Picture) -> str:
    import cv2

    return f"data:image/jpeg;base64,{base64.b64encode(cv2.imencode('.jpg', picture)[1].tobytes()).decode()}"
