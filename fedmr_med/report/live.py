"""A page about a federation at work, which the browser loads anew every few seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import NONE, Cell, Section, bullets, cards, figure, number, paragraph, table
from fedmr_med.report.lines import duration
from fedmr_med.report.svg import lines

REFRESH_SECONDS = 5
_DOING = {
    "train": "training",
    "validate": "scoring the model",
    "head": "making the closed-form head",
    "survey": "asking what the hospitals hold",
}


@dataclass(frozen=True)
class Standing:
    """Where a chain stands.

    Attributes:
        chain, name, state: id of the chain, name of its job, and what it does, in words.
        expected: the sites of the job.
        connected: those that are connected to the server.
        progress: what the job's controller says, see :meth:`fedmr_med.flare.progress.Progress.values`; None before the
            first task and after the last.
        waited: seconds since the sites were asked.
        said: what happened, the newest first.
        ended: whether nothing follows.
    """

    chain: str
    name: str
    state: str
    expected: tuple[str, ...] = ()
    connected: tuple[str, ...] = ()
    progress: Mapping[str, Any] | None = None
    waited: float = 0.0
    said: tuple[str, ...] = ()
    ended: bool = False


def live_page(standing: Standing) -> str:
    """Return the page as HTML."""
    sections = [_now(standing), _hospitals(standing), *_past(standing)]
    if said := bullets(standing.said):
        sections.append(Section("said", "What happened", said))
    part = Part("live", f"{standing.name or 'chain'} {standing.chain}", False, tuple(sections))
    return page_of([part], refresh=None if standing.ended else REFRESH_SECONDS)


def _now(standing: Standing) -> Section:
    progress = standing.progress
    parts: list[Markup | None] = [paragraph(_sentence(standing.state))]
    if progress:
        done, rounds = min(progress["round"], progress["rounds"]), progress["rounds"]
        answered, asked = len(progress["answered"]), len(progress["answered"]) + len(progress["waiting"])
        left = progress["seconds_left"]
        shown = [
            ("rounds done", f"{done} of {rounds}"),
            (f"answered, {_DOING.get(progress.get('asked', ''), 'now')}", f"{answered} of {asked}"),
            ("time left", f"about {duration(left)}" if left else NONE),
        ]
        parts.append(cards(shown))
        so_far = done + (answered / asked if asked and done < rounds else 0)
        bar = Markup('<progress aria-label="Rounds" value="{}" max="{}"></progress>')
        parts.append(bar.format(f"{so_far:.3f}", rounds or 1))
        parts.append(paragraph(_sentence(progress["score"])) if progress.get("score") else None)
    return Section.of("now", "Now", *parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def _hospitals(standing: Standing) -> Section:
    """Return the expected hospitals: who has answered, who is at work, late, refused or not connected."""
    progress = standing.progress or {}
    past = progress.get("past", [])
    usual = max((record["seconds"] for record in past), default=None)
    rows = []
    for site in dict.fromkeys((*standing.expected, *progress.get("waiting", ()))):
        taken = sum(site in record["sites"] for record in past)
        rows.append((site, _state(site, standing, usual), f"{taken} of {len(past)}" if past else NONE))
    columns = ("hospital", "now", "rounds so far")
    missing = [site for site in standing.expected if site not in standing.connected and not standing.ended]
    loud = paragraph(f"Not connected: {', '.join(missing)}.", "loud") if missing else None
    return Section.of("hospitals", "Hospitals", loud, table("Expected hospitals", columns, rows))


def _state(site: str, standing: Standing, usual: float | None) -> Cell:
    """Return what a hospital does now."""
    progress = standing.progress or {}
    if site in progress.get("refused", {}):
        return Cell(f"refused: {progress['refused'][site]}", "opted")
    if site in progress.get("answered", ()):
        return Cell("has answered", "shared")
    if standing.ended or site not in standing.connected:
        return Cell(NONE, "") if standing.ended else Cell("not connected", "opted")
    if site not in progress.get("waiting", ()):
        return Cell("connected", "")
    said = f"at work for {duration(standing.waited)}"
    if usual is None or standing.waited <= usual:
        return Cell(said, "")
    return Cell(f"late: {said}, no round took longer than {duration(usual)}", "withheld")


def _past(standing: Standing) -> list[Section]:
    """Return what the finished rounds came to."""
    past = (standing.progress or {}).get("past", [])
    if not past:
        return []
    scores = [(float(record["round"]), record["score"]) for record in past if record["score"] is not None]
    columns = ("round", "took", "hospitals", "missing or refused", "mean recall")
    rows = []
    for record in reversed(past):
        took, sites, score = duration(record["seconds"]), record["sites"], number(record["score"])
        missing = ", ".join(sorted({*record["refused"], *standing.expected} - {*sites})) or NONE
        rows.append((str(record["round"]), took, str(len(sites)), missing, score))
    values = table("Rounds, the last one first", columns, rows)
    title = "Mean recall of the global model on the test images of all hospitals"
    chart = lines(title, {"all": scores}, xlabel="rounds done", ylabel="mean recall", yrange=(0, 1))
    return [Section.of("rounds", "Round by round", figure(chart, f"{title}.") if scores else None, values)]
