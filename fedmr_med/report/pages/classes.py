"""The model class by class: how well it ranks, where it decides, whether its probabilities can be believed."""

from markupsafe import Markup

from fedmr_med.figures import ClassFigures
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
    parts: list[Markup | None] = [
        table("Each class against all others, all hospitals together: how well it is ranked", _RANKING, ranking),
        table("What is decided: by the model's own answer, and from a threshold on", _DECISIONS, decisions),
        _curves(classes),
    ]
    where = "The threshold has the largest sum of sensitivity and specificity on these images, so both are optimistic."
    parts.append(paragraph(f"Sensitivity and specificity are of the model's own answer, the likeliest class. {where}"))
    if found.temperature is not None:
        scaled = f"Divided by a temperature of {found.temperature:.2f}, the logits fit best"
        loss = f" (log loss {number(found.nll)}, then {number(found.calibrated_nll)})"
        parts.append(paragraph(f"{scaled}{loss}. Brier score {with_interval(found.brier)}."))
    return Section("classes", "Class by class", join(parts))


def _ranking(name: str, found: ClassFigures) -> tuple[str, ...]:
    if found.status != "scored":
        return name, _STATUS[found.status], NONE, NONE, NONE
    areas = (with_interval(found.auroc), with_interval(found.auprc))
    return name, str(found.positives), *areas, number(found.calibration_error)


def _decisions(name: str, found: ClassFigures) -> tuple[str, ...]:
    there = (found.threshold_sensitivity, found.threshold_specificity)
    own = (with_interval(e) for e in (found.sensitivity, found.specificity))
    return name, *own, number(found.threshold), *(with_interval(e) for e in there)


def _curves(classes: dict[str, ClassFigures]) -> Markup | None:
    roc = {name: found.roc for name, found in classes.items() if found.roc}
    reliable = {
        name: [(point.predicted, point.observed) for point in found.reliability]
        for name, found in classes.items()
        if name in roc and found.reliability
    }
    if not roc:
        return None
    pictures = [
        figure(
            square("ROC curves", roc, xlabel="1 - specificity", ylabel="sensitivity"),
            "ROC curves, from score histograms. The dashed line is chance.",
        ),
        figure(
            square("Reliability", reliable, xlabel="predicted probability", ylabel="observed frequency", dots=True),
            "Reliability. On the dashed line a probability is as good as its word.",
        ),
    ]
    return join([legend(list(roc)), figures_side_by_side(pictures)])
