"""All that is measured of the model, whoever added the metric."""

from fedmr_med.evaluation.catalog import described, names_in
from fedmr_med.report.elements import Section, table
from fedmr_med.report.pages._run import final
from fedmr_med.report.sources import ChainRun


def page(run: ChainRun) -> Section | None:
    """Return every metric, of all hospitals together and of each."""
    chosen = final(run)
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
