"""Whether the model is better than another one, on the same images."""

from fedmr_med.evaluation.pairs import PairRecord
from fedmr_med.report.elements import NONE, Section, bullets, cards, number, paragraph, table
from fedmr_med.report.sources import ChainRun


def page(run: ChainRun) -> Section | None:
    """Return the difference of the balanced accuracies, and the images that one of the models alone calls right."""
    found = run.final.against if run.final else None
    if found is None:
        return None
    rows = [
        (name, str(one.images), str(one.first), str(one.second), _p(one.p))
        if one.images
        else (name, "few or none", *[NONE] * 3)
        for name, one in zip(run.classes, found.classes, strict=True)
    ]
    heads = ("class", "test images", "this model alone right", "the other alone right", "p (McNemar)")
    return Section.of(
        "against",
        "Against the other model",
        cards([(_what(found), _value(found)), ("p that there is none", _p(found.p))]) if found.difference else None,
        paragraph(verdict(found)),
        table("Images on which the models differ", heads, rows),
        bullets(f"{site} tells nothing." for site in found.silent),
        paragraph(
            f"Both models answered for the same images of {', '.join(found.sites) or 'a secure sum'}. The interval is "
            f"of 95 %; the images of a patient count as one cluster (design effect {found.effect:.1f}). The tests by "
            "class are not corrected for their number."
        ),
    )


def verdict(found: PairRecord) -> str:
    """Say in a sentence which model is better, as far as these images tell."""
    if found.difference is None or found.difference.low is None or found.difference.high is None:
        return "No hospital shares the scores of any class, so which model is better cannot be determined."
    if found.difference.low > 0 or found.difference.high < 0:
        better = "This model is" if found.difference.low > 0 else "The other model is"
        return f"{better} better on these images by more than chance explains: {_what(found)} {_value(found)}."
    return f"These images do not tell which model is better: {_what(found)} {_value(found)}."


def _p(value: float | None) -> str:
    return "< 0.001" if value is not None and value < 0.001 else number(value)


def _what(found: PairRecord) -> str:
    count = sum(one.images > 0 for one in found.classes)
    return "difference of balanced accuracies" if found.whole else f"difference of mean recalls over {count} classes"


def _value(found: PairRecord) -> str:
    one = found.difference
    if one is None or one.low is None or one.high is None:
        return NONE
    return f"{one.value:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
