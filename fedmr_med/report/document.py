"""A whole report: one HTML file that needs no other, without scripts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmr_med.errors import ResultsError
from fedmr_med.files import write_text
from fedmr_med.report.elements import DEMO_NOTE, Section, rendered
from fedmr_med.report.pages import CHAIN_PAGES, SURVEY_PAGES, attacks, comparison, privacy
from fedmr_med.report.sources import Attacks, AuditLog, ChainRun, Comparison, Source, find_sources
from fedmr_med.version import __version__


@dataclass(frozen=True)
class Part:
    """What a report says about one source.

    Attributes:
        name: what links to its sections begin with.
        demo: whether generated data stood in for data.
    """

    name: str
    title: str
    demo: bool
    sections: tuple[Section, ...]


def write_report(places: Sequence[Path | str], out: Path | str = "report.html") -> list[Source]:
    """Write a report about all that simulator workspaces, downloaded chains, kits, ... hold; return what that was.

    Raises:
        ResultsError: there is nothing to report on, or a file is damaged.
        OSError: it cannot be written.
    """
    sources = [source for place in places for source in find_sources(Path(place))]
    if not sources:
        raise ResultsError("Name at least one folder to report on.", code="results.empty")
    write_text(Path(out), render(sources))
    return sources


def render(sources: Sequence[Source]) -> str:
    """Return a report as HTML; all text in it is escaped."""
    runs = [source for source in sources if isinstance(source, ChainRun)]
    parts = [part(source, f"part{number}") for number, source in enumerate(sources)]
    if len(runs) > 1:
        parts.insert(0, Part("all", "Side by side", False, (comparison.side_by_side(runs),)))
    return page_of(parts)


def page_of(parts: Sequence[Part], *, refresh: int | None = None) -> str:
    """Return parts as one HTML page that needs no other file; a browser loads it anew after ``refresh`` seconds."""
    here = Path(__file__)
    return rendered(
        here.with_name("report.html"),
        escaped=True,
        title=parts[0].title if len(parts) == 1 else "Report on several runs",
        parts=parts,
        refresh=refresh,
        demo=DEMO_NOTE if any(part.demo for part in parts) else "",
        style=here.with_name("style.css").read_text(encoding="utf-8"),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        version=__version__,
    )


def part(source: Source, name: str) -> Part:
    """Return what is said about one source."""
    if isinstance(source, ChainRun):
        pages = (page(source) for page in (CHAIN_PAGES if source.history.survey is None else SURVEY_PAGES))
        result = source.result
        return Part(name, result.name or result.dataset, result.demo, tuple(page for page in pages if page is not None))
    if isinstance(source, Comparison):
        first = source.runs[0]
        return Part(name, f"{first.dataset} {first.split or ''}".strip(), first.demo, (comparison.methods(source),))
    if isinstance(source, AuditLog):
        return Part(name, f"Audit log of {source.place.resolve().name}", False, (privacy.journal(source),))
    if isinstance(source, Attacks):
        audit = source.audit
        return Part(name, f"Privacy audit of {audit.site}", audit.demo, (attacks.page(audit),))
    return Part(name, source.title, source.demo, tuple(comparison.tables(source)))
