"""A page of tables and pictures in one self-contained file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class PageTable:
    """A table of text; the first column is a name, the others are figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture as an SVG element, such as :func:`fedmr_med.report.curves.as_svg` makes."""

    title: str
    svg: str


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: heading of the page.
        notes: what a reader has to know before believing a figure.
        remarks: what else there is to say, as a list below the tables.
        tables, pictures: the content.
        errors: what went wrong.
    """

    title: str
    notes: Sequence[str] = ()
    tables: Sequence[PageTable] = ()
    pictures: Sequence[Picture] = field(default_factory=tuple)
    errors: Sequence[str] = ()
    remarks: Sequence[str] = ()


def render(page: Page) -> str:
    """Return the page as HTML that needs no other file; all text in it is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.render(
        title=page.title,
        notes=page.notes,
        tables=page.tables,
        pictures=page.pictures,
        errors=page.errors,
        remarks=page.remarks,
        style=Path(__file__).with_name("style.css").read_text(encoding="utf-8"),
    )
