"""The model class by class: how much it finds, how well it ranks, whether its probabilities can be believed."""

from markupsafe import Markup

from fedmr_med.evaluation.catalog import described, names_in
from fedmr_med.evaluation.figures import ClassFigures
from fedmr_med.report.elements import Section, estimate, figure, figures_side_by_side, join, number, paragraph, table
from fedmr_med.report.pages.metrics import headings
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import forest, reliability, square

_STATUS = {"held_back": "held back", "none": "no test image"}
_THRESHOLD = (
    "Sensitivity and specificity at the threshold: the class counts as called from this probability on. The threshold "
    "maximizes their sum on "
)
_OPTIMISTIC = {
    "test images": "these images, so these figures are optimistic.",
    "validation images": "validation images, which are not among these.",
}


def page(run: ChainRun) -> Section | None:
    """Return the figures of each class with intervals, ROC and reliability curves."""
    chosen = run.final
    found = chosen.pooled_figures if chosen else None
    if chosen is None or found is None:
        return None
    classes = {run.spelled(name): figures for name, figures in zip(run.classes, found.classes, strict=False)}
    measured = names_in(figures.metrics for figures in found.classes)
    exact, binned = ([name for name in measured if described(name).binned is of_bins] for of_bins in (False, True))
    answers, scores = [], []
    for name, figures in classes.items():
        images = _STATUS.get(figures.status, str(figures.positives))
        answers.append((name, images, *(estimate(figures.text(metric)) for metric in exact)))
        scores.append((name, number(figures.threshold), *(estimate(figures.text(metric)) for metric in binned)))
    title = f"Each class against the others, by the model's own answer, all hospitals together ({chosen.coverage})"
    by_probability = (
        table("By the probability of the class", ("class", "threshold", *headings(binned, of_a_class=True)), scores),
        paragraph(_THRESHOLD + _OPTIMISTIC[chosen.chosen_on]),
    )
    tempered = f"Probabilities are calibrated: logits are divided by a temperature of {found.temperature or 0:.2f}."
    return Section.of(
        "classes",
        "Class by class",
        figures_side_by_side([_sensitivity(classes), _roc(classes)]),
        table(title, ("class", "test images", *headings(exact, of_a_class=True)), answers),
        *(by_probability if binned else ()),
        _reliability(classes),
        None if found.temperature is None else paragraph(tempered),
    )


def _sensitivity(classes: dict[str, ClassFigures]) -> Markup | None:
    found = {name: figures.metrics.get("sensitivity") for name, figures in classes.items()}
    rows = [(name, metric.value, metric.low, metric.high) for name, metric in found.items() if metric is not None]
    said = "Sensitivity: the share of a class's test images that the model recognizes. Lines are 95 % intervals."
    chart = forest("Sensitivity of each class", rows, xlabel="sensitivity", total=False)
    return figure(chart, said) if rows else None


def _roc(classes: dict[str, ClassFigures]) -> Markup | None:
    curves = {name: found.roc for name, found in classes.items() if found.roc}
    said = "ROC curves, from score histograms. The dashed line is chance."
    chart = square("ROC curves", curves, xlabel="1 - specificity", ylabel="sensitivity")
    return figure(chart, said, names=list(curves)) if curves else None


def _reliability(classes: dict[str, ClassFigures]) -> Markup | None:
    pictures = []
    for index, (name, found) in enumerate(classes.items()):
        if found.roc and found.reliability:
            points = [(point.predicted, point.observed, point.count) for point in found.reliability]
            pictures.append(figure(reliability(name, points, color=index), name))
    if not pictures:
        return None
    said = (
        "Reliability: predicted probability and how often it was true, in ten bins; a dot is as large as the bin has "
        "images. Perfect calibration lies on the dashed line."
    )
    return join([figures_side_by_side(pictures, small=True), paragraph(said)])
