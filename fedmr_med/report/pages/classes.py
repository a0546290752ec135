"""The model class by class: how well it ranks, where it decides, whether its probabilities can be believed."""

from collections.abc import Sequence

from markupsafe import Markup

from fedmr_med.evaluation.figures import ClassFigures, ReliabilityPoint
from fedmr_med.report.elements import (
    NONE,
    Section,
    figure,
    figures_side_by_side,
    join,
    legend,
    number,
    paragraph,
    table,
    with_interval,
)
from fedmr_med.report.pages._run import final, names
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import square

_STATUS = {"held_back": "held back", "none": "no test image"}
_ROUGH = (
    "Rough: hospitals join neighbouring cells of a histogram until each holds enough images to leave (the policy's "
    "min_class_count). With few test images of a class its curve has few steps, and its area can come out far too good "
    "or too bad, whatever an interval says. Trust sensitivity and specificity instead: they come from exact counts."
)
_RANKING = ("class", "test images", "AUROC", "AUPRC", "calibration error")
_DECISIONS = ("class", "sensitivity", "specificity", "threshold", "sensitivity there", "specificity there")


def page(run: ChainRun) -> Section | None:
    """Return the figures of each class with intervals, ROC and reliability curves."""
    chosen = final(run)
    found = chosen.pooled_figures if chosen else None
    if found is None:
        return None
    classes = dict(zip(names(run), found.classes, strict=False))
    ranking = [_ranking(name, figures) for name, figures in classes.items()]
    decisions = [_decisions(name, figures) for name, figures in classes.items()]
    all_rough = all(figures.rough for figures in found.classes)
    if all_rough:
        decisions = [row[:3] for row in decisions]
    parts: list[Markup | None] = [
        table("Each class against all others, all hospitals together: how well it is ranked", _RANKING, ranking),
        table(
            "What is decided: by the model's own answer, and from a threshold on",
            _DECISIONS[: len(decisions[0])],
            decisions,
        ),
        paragraph(_ROUGH, "note") if found.rough else None,
        _curves(classes),
    ]
    own = "Sensitivity and specificity are of the model's own answer, the likeliest class."
    where = " The threshold has the largest sum of both on these images, so the figures there are optimistic."
    parts.append(paragraph(own if all_rough else own + where))
    if found.temperature is not None:
        scaled = f"Divided by a temperature of {found.temperature:.2f}, the logits fit best"
        loss = f" (log loss {number(found.nll)}, then {number(found.calibrated_nll)})"
        parts.append(paragraph(f"{scaled}{loss}. Brier score {with_interval(found.brier)}."))
    return Section("classes", "Class by class", join(parts))


def _ranking(name: str, found: ClassFigures) -> tuple[str, ...]:
    if found.status != "scored":
        return name, _STATUS[found.status], NONE, NONE, NONE
    if found.rough:
        areas = [NONE if area is None else f"rough, {area.value:.2f}" for area in (found.auroc, found.auprc)]
        return name, str(found.positives), *areas, NONE
    areas = [with_interval(area) for area in (found.auroc, found.auprc)]
    return name, str(found.positives), *areas, number(found.calibration_error)


def _decisions(name: str, found: ClassFigures) -> tuple[str, ...]:
    there = (found.threshold_sensitivity, found.threshold_specificity)
    own = (with_interval(e, 2) for e in (found.sensitivity, found.specificity))
    if found.rough:
        return name, *own, NONE, NONE, NONE
    return name, *own, number(found.threshold), *(with_interval(e, 2) for e in there)


def _curves(classes: dict[str, ClassFigures]) -> Markup | None:
    roc = {name: found.roc for name, found in classes.items() if found.roc and not found.rough}
    pictures = []
    if roc:
        chart = square("ROC curves", roc, xlabel="1 - specificity", ylabel="sensitivity")
        pictures.append(figure(chart, "ROC curves, from score histograms. The dashed line is chance."))
    reliable = {
        name: _points(found.reliability) for name, found in classes.items() if name in roc and found.reliability
    }
    if reliable:
        axes = {"xlabel": "predicted probability", "ylabel": "observed frequency"}
        chart = square("Reliability", reliable, **axes, dots=True)
        pictures.append(figure(chart, "Reliability. On the dashed line a probability is as good as its word."))
    if not pictures:
        return None
    return join([legend(list(roc)) if roc else None, figures_side_by_side(pictures)])


def _points(points: Sequence[ReliabilityPoint]) -> list[tuple[float, float]]:
    return [(point.predicted, point.observed) for point in points]
