"""All that is measured of a model, whoever added the metric, in tables."""

from collections.abc import Iterable, Mapping, Sequence

from fedmr_med.evaluation.catalog import described, names_in
from fedmr_med.evaluation.results import RunResult
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.report.elements import NONE, Section, table
from fedmr_med.report.sources import ChainRun

BY_METHOD = "Every metric of the last model, mean ± standard deviation over the seeds"


def page(run: ChainRun) -> Section | None:
    """Return every metric, of all hospitals together and of each."""
    chosen = run.final
    if chosen is None or chosen.pooled_figures is None:
        return None
    places = {"all together": chosen.pooled_figures, **chosen.figures}
    rows = [
        (described(name).heading, described(name).direction, *(found.text(name) for found in places.values()))
        for name in names_in(found.metrics for found in places.values())
    ]
    rows.append(("classes that count", "", *(found.coverage for found in places.values())))
    title = "Every metric over the classes that count, with its interval of 95 % where it has one"
    return Section("metrics", "Every metric", table(title, ("metric", "direction", *places), rows))


def headings(names: Iterable[str], *, of_a_class: bool = False) -> list[str]:
    """Return what columns of metrics are called: titles, with arrows that point to the better values."""
    found = map(described, names)
    return [f"{m.title if of_a_class else m.heading} {'↑' if m.higher_is_better else '↓'}" for m in found]


def by_method(runs: Iterable[RunResult]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a table :data:`BY_METHOD`; there is no row without a score."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for run in runs:
        label = run.label or run.method
        if run.rounds and run.rounds[-1].metrics:
            groups.setdefault(label, []).append(run.rounds[-1].metrics)
        if run.head_metrics:
            groups.setdefault(f"{label}, with head", []).append(run.head_metrics)
    names = names_in(metrics for group in groups.values() for metrics in group)
    rows = [[label, *(_spread(name, group) for name in names)] for label, group in groups.items()]
    return ["method", *headings(names)], rows


def _spread(name: str, group: Sequence[Mapping[str, float]]) -> str:
    values = [metrics[name] for metrics in group if name in metrics]
    if not values:
        return NONE
    spread = Spread.of(values)
    parts = [spread.mean] if spread.deviation is None else [spread.mean, spread.deviation]
    return " ± ".join(format(part, described(name).format) for part in parts)
