"""The parts of a report: sections, tables and figures as HTML, and templates. All text that goes in is escaped."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

NONE, HELD_BACK = "-", "held back"
_MANY_COLUMNS = 4  # that a phone shows beside each other; below each other if there are more
_SHADES = 5
_NO_NUMBER = (HELD_BACK, "not reported", "no image", "no test image", "failed")  # in the place of one
DEMO_NOTE = "DEMO on generated pictures. No figure here is a medical result."


@dataclass(frozen=True)
class Section:
    """A part of a report with a heading of its own.

    Attributes:
        name: what links to it end in.
        body: its content, as HTML.
    """

    name: str
    title: str
    body: Markup

    @classmethod
    def of(cls, name: str, title: str, *parts: Markup | None) -> "Section":
        """Return a section of several parts, without those that are None."""
        return cls(name, title, join(parts))


class Cell(str):
    """The text of a cell that has a class of its own, such as a color."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Cell":
        """Return a text with its class."""
        cell = super().__new__(cls, text)
        cell.kind = kind
        return cell


def join(parts: Iterable[Markup | None]) -> Markup:
    """Return HTML parts one after the other, without those that are None."""
    return Markup("\n").join(part for part in parts if part is not None)


def paragraph(text: str, kind: str = "") -> Markup:
    """Return a paragraph; ``kind`` is its class: ``loud``, ``note`` or none."""
    return Markup('<p class="{}">{}</p>').format(kind, text) if kind else Markup("<p>{}</p>").format(text)


def note(text: str | None) -> Markup | None:
    """Return a paragraph beside the matter; None without a text."""
    return paragraph(text, "note") if text else None


def bullets(lines: Iterable[str]) -> Markup | None:
    """Return a list of sentences; None without any."""
    items = Markup("").join(Markup("<li>{}</li>").format(line) for line in lines)
    return Markup("<ul>{}</ul>").format(items) if items else None


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    matrix: bool = False,
) -> Markup:
    """Return a table whose first column names the rows. On a phone, many columns stand below each other.

    Args:
        caption: what the table shows, read out with it.
        rows: cells as text, or as HTML; those of a column of words start at the left, numbers end at the right.
        matrix: whether the short cells are to be compared across rows, so that a phone shows them as they are.
    """
    body = [tuple(row) for row in rows]
    words = [place == 0 or any(_is_word(row[place]) for row in body) for place in range(len(columns))]
    head = Markup("").join(
        Markup('<th scope="col" class="{}">{}</th>').format("word" if word else "", column)
        for column, word in zip(columns, words, strict=True)
    )
    lines = []
    for first, *others in body:
        cells = Markup("").join(
            Markup('<td data-column="{}" class="{}">{}</td>').format(
                column, cell.kind if isinstance(cell, Cell) else "word" if word else "", cell)
            for column, word, cell in zip(columns[1:], words[1:], others, strict=True)
        )  # fmt: skip
        lines.append(Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, cells))
    kind = "matrix" if matrix else "wide" if len(columns) > _MANY_COLUMNS else ""
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table class="{}"><caption>{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(caption, kind, caption, head, Markup("\n").join(lines))


def _is_word(cell: str) -> bool:
    return cell[:1].isalpha() and cell not in _NO_NUMBER


def estimate(text: str) -> Markup:
    """Return a figure with its spread, "0.5 (0.4 to 0.6)" or "0.5 ± 0.1", as two lines of a cell."""
    value, _, interval = text.partition(" (")
    value, plus_minus, deviation = value.partition(" ± ")
    spread = f"± {deviation}" if plus_minus else interval and f"({interval}"
    return Markup("{} <small>{}</small>").format(value, spread) if spread else Markup("{}").format(text)


def two_lines(row: Sequence[str]) -> list[str]:
    """Return a row whose figures have their spread below them."""
    name, *cells = row
    return [name, *map(estimate, cells)]


def shaded(text: str, kind: str, share: float) -> str:
    """Return a cell, a ``hit`` or a ``miss``, whose color is the stronger the larger its share, from 0 to 1, is."""
    return Cell(text, f"{kind}{max(1, round(_SHADES * share))}") if share else text


def folded(summary: str, content: Markup) -> Markup:
    """Return what is shown when somebody opens it."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, content)


def counted(number: int, most: int) -> str:
    """Return the cell of a number of images: the stronger its color the more there are, on a logarithmic scale."""
    return shaded(str(number), "hit", math.log1p(number) / math.log1p(most or 1))


def figure(
    svg: Markup,
    caption: str,
    values: Markup | None = None,
    *,
    names: Sequence[str] = (),
    keys: Mapping[str, str] | None = None,
) -> Markup:
    """Return a picture with its legend, a caption and, folded, the table of its values.

    Args:
        names: of its lines, in their order.
        keys: what its cells stand for, by their class.
    """
    below = folded("The values", values) if values else ""
    above = legend(names) if names else Markup("")
    if keys:
        box = Markup('<rect class="{}" width="28" height="8"/>')
        above += _legend((box.format(kind), name) for kind, name in keys.items())
    return Markup("<figure>{}{}<figcaption>{}</figcaption>{}</figure>").format(above, svg, caption, below)


def legend(names: Sequence[str]) -> Markup:
    """Return what the colors and dashes of a chart stand for."""
    line = Markup('<line class="l{}" x1="0" y1="4" x2="28" y2="4"/>')
    return _legend((line.format(number % 8), name) for number, name in enumerate(names))


def _legend(keys: Iterable[tuple[Markup, str]]) -> Markup:
    key = Markup('<li><svg class="key" viewBox="0 0 28 8" aria-hidden="true">{}</svg>{}</li>')
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(key.format(*drawn) for drawn in keys))


def cards(figures: Iterable[tuple[str, str]]) -> Markup:
    """Return a few figures in large print, each under its name."""
    body = (
        Markup('<div class="card"><dt>{}</dt><dd>{}</dd></div>').format(name, estimate(value))
        for name, value in figures
    )
    return Markup('<dl class="cards">{}</dl>').format(Markup("").join(body))


def figures_side_by_side(parts: Iterable[Markup | None], *, small: bool = False) -> Markup:
    """Return figures beside each other where there is room, small ones three or four in a line."""
    return Markup('<div class="grid{}">{}</div>').format(" small" if small else "", join(parts))


def number(value: float | None, digits: int = 3) -> str:
    """Return a number, or a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def rendered(path: Path, *, escaped: bool, **values: Any) -> str:
    """Return a jinja2 template filled in, for HTML with escaped texts; a name that ``values`` lack is an error."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=escaped, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(path.read_text(encoding="utf-8")).render(**values)
