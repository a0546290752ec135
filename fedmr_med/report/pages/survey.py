"""What the hospitals hold, before anything is trained: class by hospital, sizes, light and color, subgroups."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fedmr_med.evaluation.records import Held, SurveyRecord
from fedmr_med.report.elements import Cell, Section, bullets, counted, note, paragraph, table
from fedmr_med.report.sources import ChainRun

LARGE = 0.8
"""From so many standard deviations on a difference of means is called large (Cohen, 1988)."""

TOGETHER = "all together"
FEW = "few or none"
_HIDDEN = f"{FEW}: held back. No hospital reports fewer images than its min_class_count (11 by default)."


def page(run: ChainRun) -> Section | None:
    """Return the counts by class and hospital, what stands out, and what the pictures are like."""
    record = run.history.survey
    if record is None:
        return None
    name, title = "survey", "What the hospitals hold"
    if record.total is None:
        return Section.of(name, title, _absent(record), note("No hospital shares a survey."))
    held = record.sites | {TOGETHER: record.total}
    said = bullets([*only_at_one(record, run.classes), *unlike(record)])
    return Section.of(
        name,
        title,
        _absent(record),
        said or paragraph("Nothing stands out." if record.sites else "The total alone is known."),
        _counts("Training images by hospital and class", held, run.classes, "train"),
        _counts("Test images by hospital and class", held, run.classes, "test"),
        note(_HIDDEN),
        _tones(held),
        _edges(held),
        *_subgroups(held),
        _doubles(held),
    )


def only_at_one(record: SurveyRecord, classes: Sequence[str]) -> list[str]:
    """Say which classes one hospital alone tells of, and which none does; nothing where the total alone is known."""
    lines = []
    for label, name in enumerate(classes) if record.sites else ():
        where = [site for site, held in record.sites.items() if held.train[label]]
        if len(where) == 1:
            lines.append(f"{name} is at one hospital only: {where[0]}. The others have none, or too few to tell.")
        elif not where:
            lines.append(f"No hospital reports training images of {name}.")
    return lines


def unlike(record: SurveyRecord) -> list[str]:
    """Say whose pictures look unlike the others': by how many deviations between pictures their means differ."""
    lines = []
    for site, held in record.sites.items():
        others = [other for name, other in record.sites.items() if name != site and other.tones]
        apart = {name: distance(held, others, name) for name in held.tones} if others else {}
        large = [
            f"{name} is {abs(value):.1f} {'above' if value > 0 else 'below'}"
            for name, value in apart.items()
            if abs(value) >= LARGE
        ]
        if large:
            lines.append(
                f"The pictures of {site} look unlike the others': {', '.join(large)} that of the other hospitals, in "
                "standard deviations between the pictures of one."
            )
    return lines


def distance(held: Held, others: Sequence[Held], name: str) -> float:
    """Return how far a mean is from that of other sites, in deviations between the pictures of a site (Cohen's d)."""
    number = sum(other.measured for other in others)
    mean = sum(other.measured * other.tones[name].mean for other in others) / number
    everybody = [held, *others]
    within = sum(one.measured * one.tones[name].deviation ** 2 for one in everybody)
    spread = math.sqrt(within / (number + held.measured))
    return (held.tones[name].mean - mean) / spread if spread else 0.0


def _absent(record: SurveyRecord) -> Markup | None:
    lines = [f"{site} shares no survey (policy.share_survey)." for site in record.silent]
    lines += [f"The answer of {site} did not count: {reason}." for site, reason in record.refused.items()]
    if record.secure is not None:
        lines.append(f"Added up in a secure sum of {len(record.secure.sites)} hospitals: nobody knows a single one's.")
    return bullets(lines)


def _counts(title: str, held: Mapping[str, Held], classes: Sequence[str], fold: str) -> Markup:
    """Return a table whose cells are darker the more images there are, on a logarithmic scale."""
    most = max(max(getattr(one, fold), default=0) for one in held.values())
    rows = []
    for site, one in held.items():
        counts = getattr(one, fold)
        cells = (counted(number, most) if number else Cell(FEW, "withheld") for number in counts)
        rows.append((site, *cells, str(sum(counts))))
    return table(title, ("hospital", *classes, "all"), rows)


def _tones(held: Mapping[str, Held]) -> Markup | None:
    known = {site: one for site, one in held.items() if one.tones}
    if not known:
        return None
    names = tuple(next(iter(known.values())).tones)
    rows = [
        (site, *(f"{one.tones[name].mean:.3f} ± {one.tones[name].deviation:.3f}" for name in names))
        for site, one in known.items()
    ]
    caption = "Training pictures from 0 to 1: mean ± standard deviation between pictures"
    return table(caption, ("hospital", *names), rows)


def _edges(held: Mapping[str, Held]) -> Markup | None:
    edges = sorted({edge for one in held.values() for edge in one.edges})
    if not edges:
        return None
    rows = [(site, *(str(one.edges.get(edge) or FEW) for edge in edges)) for site, one in held.items() if one.edges]
    return table("Training pictures by their shorter edge", ("hospital", *(f"{e} px and more" for e in edges)), rows)


def _subgroups(held: Mapping[str, Held]) -> list[Markup]:
    columns = list(dict.fromkeys(column for one in held.values() for column in one.subgroups))
    tables = []
    for column in columns:
        levels = tuple(dict.fromkeys(level for one in held.values() for level in one.subgroups.get(column, {})))
        rows = [
            (site, *(str(count or FEW) for count in counts), str(sum(one.train) - sum(counts)))
            for site, one in held.items()
            if any(counts := [one.subgroups.get(column, {}).get(level, 0) for level in levels])
        ]
        if rows:
            tables.append(table(f"Training images by {column}", ("hospital", *levels, "others, or held back"), rows))
    return tables


def _doubles(held: Mapping[str, Held]) -> Markup | None:
    rows = [(site, str(one.doubles or FEW)) for site, one in held.items() if one.measured]
    caption = "Images that repeat another one of the same hospital to the pixel"
    return table(caption, ("hospital", "images"), rows) if rows else None
