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
    answers = [
        (
            name,
            _STATUS.get(figures.status, str(figures.positives)),
            *(estimate(figures.text(metric)) for metric in exact),
        )
        for name, figures in classes.items()
    ]
    scores = [
        (name, number(figures.threshold), *(estimate(figures.text(metric)) for metric in binned))
        for name, figures in classes.items()
    ]
    title = f"Each class against the others, by the model's own answer, all hospitals together ({chosen.coverage})"
    tempered = f"Probabilities are calibrated: logits are divided by a temperature of {found.temperature or 0:.2f}."
    return Section.of(
        "classes",
        "Class by class",
        figures_side_by_side([_sensitivity(classes), _roc(classes)]),
        table(title, ("class", "test images", *headings(exact, of_a_class=True)), answers),
        table("By the probability of the class", ("class", "threshold", *headings(binned, of_a_class=True)), scores)
        if binned
        else None,
        paragraph(_THRESHOLD + _OPTIMISTIC[chosen.chosen_on]) if binned else None,
        _reliability(classes),
        None if found.temperature is None else paragraph(tempered),
    )


def _sensitivity(classes: dict[str, ClassFigures]) -> Markup | None:
    found = {name: figures.metrics.get("sensitivity") for name, figures in classes.items()}
    rows = [(name, metric.value, metric.low, metric.high) for name, metric in found.items() if metric is not None]
    if not rows:
        return None
    chart = forest("Sensitivity of each class", rows, xlabel="sensitivity", total=False)
    return figure(
        chart, "Sensitivity: the share of a class's test images that the model recognizes. Lines are 95 % intervals."
    )


def _roc(classes: dict[str, ClassFigures]) -> Markup | None:
    curves = {name: found.roc for name, found in classes.items() if found.roc}
    if not curves:
        return None
    chart = square("ROC curves", curves, xlabel="1 - specificity", ylabel="sensitivity")
    return figure(chart, "ROC curves, from score histograms. The dashed line is chance.", names=list(curves))


def _reliability(classes: dict[str, ClassFigures]) -> Markup | None:
    pictures = [
        figure(
            reliability(
                name, [(point.predicted, point.observed, point.count) for point in found.reliability], color=index
            ),
            name,
        )
        for index, (name, found) in enumerate(classes.items())
        if found.roc and found.reliability
    ]
    if not pictures:
        return None
    said = (
        "Reliability: predicted probability and how often it was true, in ten bins; a dot is as large as the bin has "
        "images. Perfect calibration lies on the dashed line."
    )
    return join([figures_side_by_side(pictures, small=True), paragraph(said)])
