"""All that is measured of a model, whoever added the metric, in tables."""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from fedmr_med.evaluation.catalog import described, names_in
from fedmr_med.evaluation.results import RunResult
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.report.elements import NONE, Section, estimate, table
from fedmr_med.report.sources import ChainRun

BY_METHOD = "Every metric of the last model, mean ± standard deviation over the seeds"


def page(run: ChainRun) -> Section | None:
    """Return every metric, of all hospitals together and of each."""
    chosen = run.final
    if chosen is None or chosen.pooled_figures is None:
        return None
    places = {"all together": chosen.pooled_figures, **(chosen.figures if len(run.sites) > 1 else {})}
    names = names_in(found.metrics for found in places.values())
    rows = [
        (heading, *(estimate(found.text(name)) for found in places.values()))
        for name, heading in zip(names, headings(names), strict=True)
    ]
    rows.append(("classes that count", *(Markup.escape(found.coverage) for found in places.values())))
    title = (
        "Every metric over the classes that count, with its 95 % interval where it has one; ↑ higher, ↓ lower is better"
    )
    return Section("metrics", "Every metric", table(title, ("metric", *places), rows))


def headings(names: Iterable[str], *, of_a_class: bool = False) -> list[str]:
    """Return what columns of metrics are called: titles, with arrows that point to the better values."""
    found = map(described, names)
    return [f"{m.title if of_a_class else m.heading} {'↑' if m.higher_is_better else '↓'}" for m in found]


def by_method(runs: Iterable[RunResult]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a table :data:`BY_METHOD`: a row for each metric; none where nobody has a score."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for run in runs:
        label = run.label or run.method
        if run.rounds and run.rounds[-1].metrics:
            groups.setdefault(label, []).append(run.rounds[-1].metrics)
        if run.head_metrics:
            groups.setdefault(f"{label}, with head", []).append(run.head_metrics)
    names = names_in(metrics for group in groups.values() for metrics in group)
    rows = [
        [heading, *(_spread(name, group) for group in groups.values())]
        for name, heading in zip(names, headings(names), strict=True)
    ]
    return ["metric", *groups], rows


def _spread(name: str, group: Sequence[Mapping[str, float]]) -> str:
    values = [metrics[name] for metrics in group if name in metrics]
    if not values:
        return NONE
    parts = (Spread.of(values).mean, Spread.of(values).deviation)
    return " ± ".join(format(part, described(name).format) for part in parts if part is not None)
