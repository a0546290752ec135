"""The parts of a report: sections, tables and figures as HTML, and templates. All text that goes in is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

NONE = "-"
_MANY_COLUMNS = 4  # that a phone shows beside each other; below each other if there are more
_SHADES = 5
_NO_NUMBER = ("held back", "not reported", "no image", "no test image", "failed")  # in the place of one
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


def join(parts: Iterable[Markup | None]) -> Markup:
    """Return HTML parts one after the other, without those that are None."""
    return Markup("\n").join(part for part in parts if part is not None)


def paragraph(text: str, kind: str = "") -> Markup:
    """Return a paragraph; ``kind`` is its class: ``loud``, ``note`` or none."""
    return Markup('<p class="{}">{}</p>').format(kind, text) if kind else Markup("<p>{}</p>").format(text)


def bullets(lines: Iterable[str]) -> Markup:
    """Return a list of sentences."""
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(line) for line in lines))


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Markup]],
    *,
    classes: Mapping[tuple[int, int], str] | None = None,
    matrix: bool = False,
) -> Markup:
    """Return a table whose first column names the rows. On a phone, many columns stand below each other.

    Args:
        caption: what the table shows, read out with it.
        rows: cells as text, or as HTML; those of a column of words start at the left, numbers end at the right.
        classes: class of the cell in a row and column, from 0.
        matrix: whether the short cells are to be compared across rows, so that a phone shows them as they are.
    """
    chosen, body = classes or {}, [tuple(row) for row in rows]
    words = [place == 0 or any(_is_word(row[place]) for row in body) for place in range(len(columns))]
    head = Markup("").join(
        Markup('<th scope="col" class="{}">{}</th>').format("word" if word else "", column)
        for column, word in zip(columns, words, strict=True)
    )
    lines = []
    for number, (first, *others) in enumerate(body):
        cells = Markup("").join(
            Markup('<td data-column="{}" class="{}">{}</td>').format(
                column, chosen.get((number, place), "word" if words[place] else ""), cell)
            for place, (column, cell) in enumerate(zip(columns[1:], others, strict=True), start=1)
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


def two_lines(row: Sequence[str]) -> list[str | Markup]:
    """Return a row whose figures have their spread below them."""
    name, *cells = row
    return [name, *map(estimate, cells)]


def shade(kind: str, share: float) -> str:
    """Return the class of a cell whose colour is stronger the larger its share, from 0 to 1, is.

    Args:
        kind: ``hit``, what is right, or ``miss``.
        share: of its row, or of the largest value.
    """
    return f"{kind}{max(1, round(_SHADES * share))}"


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
    folded = Markup("<details><summary>The values</summary>{}</details>").format(values) if values else Markup("")
    above = legend(names) if names else Markup("")
    if keys:
        items = (Markup('<li><svg class="key" viewBox="0 0 28 8" aria-hidden="true"><rect class="{}" width="28" '
                        'height="8"/></svg>{}</li>').format(kind, name) for kind, name in keys.items())  # fmt: skip
        above += Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))
    return Markup("<figure>{}{}<figcaption>{}</figcaption>{}</figure>").format(above, svg, caption, folded)


def legend(names: Sequence[str]) -> Markup:
    """Return what the colours and dashes of a chart stand for."""
    items = (
        Markup('<li><svg class="key" viewBox="0 0 28 8" aria-hidden="true"><line class="l{}" x1="0" y1="4" x2="28" '
               'y2="4"/></svg>{}</li>').format(number % 8, name)
        for number, name in enumerate(names)
    )  # fmt: skip
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def cards(figures: Iterable[tuple[str, str]]) -> Markup:
    """Return a few figures in large print, each under its name."""
    body = (
        Markup('<div class="card"><dt>{}</dt><dd>{}</dd></div>').format(name, estimate(value))
        for name, value in figures
    )
    return Markup('<dl class="cards">{}</dl>').format(Markup("").join(body))


def figures_side_by_side(parts: Iterable[Markup], *, small: bool = False) -> Markup:
    """Return figures beside each other where there is room, small ones three or four in a line."""
    return Markup('<div class="grid{}">{}</div>').format(" small" if small else "", join(parts))


def number(value: float | None, digits: int = 3) -> str:
    """Return a number, or a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def rendered(path: Path, *, escaped: bool, **values: Any) -> str:
    """Return a jinja2 template filled in; a name that it uses and ``values`` lack is an error.

    Args:
        path: the template.
        escaped: whether texts are escaped, as HTML needs it.
        values: by name.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=escaped, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(path.read_text(encoding="utf-8")).render(**values)
