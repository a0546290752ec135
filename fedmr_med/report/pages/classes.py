"""The model class by class: how well it ranks, where it decides, whether its probabilities can be believed."""

from markupsafe import Markup

from fedmr_med.evaluation.catalog import described, names_in
from fedmr_med.evaluation.figures import ClassFigures
from fedmr_med.report.elements import (
    Section,
    figure,
    figures_side_by_side,
    join,
    legend,
    number,
    paragraph,
    table,
)
from fedmr_med.report.pages.metrics import headings
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import square

_STATUS = {"held_back": "held back", "none": "no test image"}
_THRESHOLD = "The threshold maximizes the sum of sensitivity and specificity on "

_OPTIMISTIC = {
    "test images": "these images, so the figures at the threshold are optimistic.",
    "validation images": "validation images, which are not among these.",
}


def page(run: ChainRun) -> Section | None:
    """Return the figures of each class with intervals, ROC and reliability curves."""
    chosen = run.final
    found = chosen.pooled_figures if chosen else None
    if chosen is None or found is None:
        return None
    classes = dict(zip(run.classes, found.classes, strict=False))
    measured = names_in(figures.metrics for figures in found.classes)
    exact, binned = ([name for name in measured if described(name).binned is of_bins] for of_bins in (False, True))
    answers = [
        (name, _STATUS.get(figures.status, str(figures.positives)), *map(figures.text, exact))
        for name, figures in classes.items()
    ]
    scores = [(name, number(figures.threshold), *map(figures.text, binned)) for name, figures in classes.items()]
    parts: list[Markup | None] = [
        table(
            f"Each class against the others, all hospitals together ({chosen.coverage}): by the model's own answer",
            ("class", "test images", *headings(exact, of_a_class=True)),
            answers,
        ),
        table("By the probability of the class", ("class", "threshold", *headings(binned, of_a_class=True)), scores)
        if binned
        else None,
        _curves(classes),
        paragraph(_THRESHOLD + _OPTIMISTIC[chosen.chosen_on]) if binned else None,
    ]
    if found.temperature is not None:
        parts.append(
            paragraph(f"Probabilities are calibrated: logits are divided by a temperature of {found.temperature:.2f}.")
        )
    return Section("classes", "Class by class", join(parts))


def _curves(classes: dict[str, ClassFigures]) -> Markup | None:
    roc = {name: found.roc for name, found in classes.items() if found.roc}
    pictures = []
    if roc:
        chart = square("ROC curves", roc, xlabel="1 - specificity", ylabel="sensitivity")
        pictures.append(figure(chart, "ROC curves, from score histograms. The dashed line is chance."))
    reliable = {
        name: [(point.predicted, point.observed) for point in found.reliability]
        for name, found in classes.items()
        if name in roc and found.reliability
    }
    if reliable:
        axes = {"xlabel": "predicted probability", "ylabel": "observed frequency"}
        chart = square("Reliability", reliable, **axes, dots=True)
        pictures.append(figure(chart, "Reliability. Perfect calibration lies on the dashed line."))
    if not pictures:
        return None
    return join([legend(list(roc)) if roc else None, figures_side_by_side(pictures)])
