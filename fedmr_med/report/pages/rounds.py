"""Round by round: how the score developed, what the hospitals minimised, what it cost."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fedmr_med.report.elements import NONE, Section, figure, figures_side_by_side, legend, number, paragraph, table
from fedmr_med.report.lines import duration, megabytes
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import Points, lines

WITH_HEAD = "all together, with the head"
_TERMS = {
    "classification": "Classification: how wrong the answers on training images are.",
    "anchor": "Anchor: how far features are from the prototype of their class.",
    "replay": "Replay: how wrong the classifier is on prototypes of classes that the hospital lacks.",
}


def scores(run: ChainRun) -> Section | None:
    """Return the mean recall by round, per hospital and pooled."""
    past = run.history
    evaluations = sorted(past.evaluations, key=lambda e: e.round)
    series: dict[str, Points] = {}
    for site in run.sites:
        told = [(e.round, e.sites[site].mean_recall) for e in evaluations if site in e.sites]
        series[site] = [(float(done), recall) for done, recall in told if recall is not None]
    series = {name: points for name, points in (series | {"all together": run.curve}).items() if points}
    if len({number for points in series.values() for number, _ in points}) < 2:
        return None
    of_head = past.of_head.pooled if past.of_head else None
    if past.head and of_head and of_head.balanced_accuracy is not None:
        series[WITH_HEAD] = [(float(past.head.round), of_head.balanced_accuracy)]
    title = "Mean recall of the global model on each hospital's test images"
    values = _values(title, series, sorted({int(number) for points in series.values() for number, _ in points}))
    chart = lines(title, series, xlabel="rounds done", ylabel="mean recall", yrange=(0, 1))
    over = {name: s.coverage for name, s in evaluations[-1].sites.items() if s.balanced_accuracy is None}
    caption = "Round 0 is the model before any training. All together: balanced accuracy, over all classes of the task."
    caption += f" Chance is {1 / len(classes):.3f}." if (classes := run.classes) else ""
    caption += f" Over fewer: {'; '.join(f'{name} {text}' for name, text in over.items())}." if over else ""
    return Section("curves", "Round by round", figure(chart, caption, values, names=list(series)))


def losses(run: ChainRun) -> Section | None:
    """Return each term of the local objective by round and hospital."""
    past, pictures = run.history, []
    known = dict.fromkeys(term for record in past.rounds for part in record.sites.values() for term in part.terms)
    if not known:
        return None
    sharing = [site for site in run.sites if any(part.terms for part in past.parts_of(site))]
    for term in known:
        series = {
            site: [
                (float(r.round), terms[term]) for r in past.rounds_of(site) if term in (terms := r.sites[site].terms)
            ]
            for site in sharing
        }
        title = f"Loss term: {term}"
        values = _values(title, series, [r.round for r in past.rounds])
        chart = lines(title, series, xlabel="round", ylabel=term, width=420)
        pictures.append(figure(chart, _TERMS.get(term, title), values))
    return Section.of("losses", "Loss terms", legend(sharing), figures_side_by_side(pictures))


def costs(run: ChainRun) -> Section | None:
    """Return traffic and time by hospital, and of the whole run."""
    past = run.history
    if not past.rounds:
        return None
    rows = []
    for site in run.sites:
        parts = past.parts_of(site)
        seconds = [part.seconds for part in parts if part.seconds is not None]
        rows.append((
            site,
            megabytes(sum(part.bytes_up for part in parts)),
            megabytes(sum(part.bytes_down for part in parts)),
            duration(sum(seconds)) if seconds else NONE,
            duration(sum(seconds) / len(seconds)) if seconds else NONE,
        ))  # fmt: skip
    columns = ("hospital", "sent", "received", "local time", "per round")
    total = sum(record.seconds for record in past.rounds)
    said = f"{len(past.rounds)} rounds took {duration(total)}, {duration(total / len(past.rounds))} each."
    if past.head:
        said += f" The closed-form head took {duration(past.head.seconds)} and {megabytes(past.head.bytes_up)} sent."
    return Section.of("costs", "Traffic and time", paragraph(said), table("Traffic and time", columns, rows))


def _values(title: str, series: Mapping[str, Points], rounds: Sequence[int]) -> Markup:
    """Return the values of a chart by round as a table."""
    known = {name: dict(points) for name, points in series.items()}
    rows = [(name, *(number(values.get(float(r))) for r in rounds)) for name, values in known.items()]
    return table(title, ("hospital", *(f"round {r}" for r in rounds)), rows)
