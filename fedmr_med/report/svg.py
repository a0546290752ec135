"""Charts as inline SVG: no script, no font, no file from elsewhere. Points say their value under the mouse."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from markupsafe import Markup

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 42
_numbers = count()


@dataclass(frozen=True)
class Axes:
    """The area of a chart and what its edges stand for."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a value in the picture."""
        (x0, x1), (y0, y1) = self.x, self.y
        across = (x - x0) / ((x1 - x0) or 1) * (self.width - self.left - _RIGHT)
        up = (y - y0) / ((y1 - y0) or 1) * (self.height - _TOP - _BOTTOM)
        return round(self.left + across, 1), round(self.height - _BOTTOM - up, 1)


def lines(
    title: str,
    series: Mapping[str, Points],
    *,
    xlabel: str,
    ylabel: str,
    yrange: tuple[float, float] | None = None,
    width: int = _WIDTH,
    bands: Mapping[str, Points] | None = None,
) -> Markup:
    """Return a chart of lines by name, in the colours of :func:`fedmr_med.report.elements.legend`.

    Args:
        title: what the chart shows, read out with it.
        series: points of each line.
        yrange: of the y axis; None fits it to the values.
        width: in units of the picture.
        bands: outline of an area around a line, by the line's name.
    """
    areas = bands or {}
    points = [point for lines in (series, areas) for line in lines.values() for point in line]
    xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
    low, high = yrange or _nice_range(ys)
    first, last = min(xs), max(xs)
    axes = Axes((first, last if last > first else first + 1), (low, high), width=width)
    parts = [_frame(axes, xlabel, ylabel, whole_x=True)]
    for index, (name, line) in enumerate(series.items()):
        if name in areas:
            parts.append(_shape(axes, areas[name], f"band d{index % 8}", "polygon"))
        parts.append(_shape(axes, line, f"l{index % 8}"))
        parts += [_dot(axes, x, y, f"d{index % 8}", f"{name}: {y:.4g} at {xlabel} {x:g}") for x, y in line]
    return _picture(title, axes, parts, f"{len(series)} lines: {', '.join(series)}.")


def square(title: str, series: Mapping[str, Points], *, xlabel: str, ylabel: str, dots: bool = False) -> Markup:
    """Return a chart from 0 to 1 with its diagonal: ROC or reliability curves."""
    axes = Axes((0, 1), (0, 1), width=360, height=348)
    parts = [_frame(axes, xlabel, ylabel), _shape(axes, [(0, 0), (1, 1)], "diagonal")]
    for index, (name, line) in enumerate(series.items()):
        parts.append(_shape(axes, line, f"l{index % 8}"))
        if dots:
            parts += [_dot(axes, x, y, f"d{index % 8}", f"{name}: {xlabel} {x:.2f}, {ylabel} {y:.2f}") for x, y in line]
    return _picture(title, axes, parts, f"{len(series)} curves: {', '.join(series)}.")


def scatter(title: str, groups: Mapping[str, Points], *, limit: float) -> Markup:
    """Return points by group in a square from ``-limit`` to ``limit``."""
    axes = Axes((-limit, limit), (-limit, limit), width=360, height=348)
    dots = (_dot(axes, x, y, f"d{i % 8}", name) for i, (name, points) in enumerate(groups.items()) for x, y in points)
    return _picture(title, axes, [_frame(axes, "", ""), *dots], f"{len(groups)} groups: {', '.join(groups)}.")


def bars(
    title: str, places: Sequence[str], series: Mapping[str, Sequence[tuple[float, float] | None]], *, ylabel: str
) -> Markup:
    """Return bars from 0 to 1, side by side at each place.

    Args:
        places: names below the bars.
        series: by name, a value and its deviation for each place; None leaves the bar out.
    """
    axes = Axes((0, len(places)), (0, 1), width=max(_WIDTH, 90 * len(places)))
    wide, parts = 0.8 / max(len(series), 1), [_frame(axes, "", ylabel, xticks=False)]
    for place, name in enumerate(places):
        x, y = axes.place(place + 0.5, 0)
        parts.append(_mark("text", "tick", name, x=x, y=y + 16))
    for index, (name, values) in enumerate(series.items()):
        for place, value in enumerate(values):
            if value is None:
                continue
            left, (height, deviation) = place + 0.1 + index * wide, value
            (x0, top), (x1, bottom) = axes.place(left, height), axes.place(left + wide, 0)
            hover = f"{name}, {places[place]}: {height:.3f} ± {deviation:.3f}"
            w, h = round(x1 - x0, 1), round(bottom - top, 1)
            parts.append(_mark("rect", f"d{index % 8}", hover=hover, x=x0, y=top, width=w, height=h))
            middle = left + wide / 2
            parts.append(_shape(axes, [(middle, height - deviation), (middle, height + deviation)], "whisker"))
    return _picture(title, axes, parts, f"{len(series)} bars at {', '.join(places)}: {', '.join(series)}.")


def forest(
    title: str, rows: Sequence[tuple[str, float, float | None, float | None]], *, xlabel: str, total: bool = True
) -> Markup:
    """Return a forest plot: per name a value and its interval; the last row can be the total."""
    height = _TOP + _BOTTOM + 30 * len(rows)
    axes = Axes((0, 1), (len(rows) - 0.5, -0.5), height=height, left=170)
    parts = [_frame(axes, xlabel, "", yticks=False)]
    for index, (name, value, low, high) in enumerate(rows):
        x, y = axes.place(value, index)
        hover = f"{name}: {value:.3f}" + ("" if low is None or high is None else f" ({low:.3f} to {high:.3f})")
        label = name if len(name) <= 22 else f"{name[:21]}…"
        parts.append(_mark("text", "name", label, x=axes.left - 8, y=y + 4))
        if low is not None and high is not None:
            (x0, _), (x1, _) = axes.place(low, index), axes.place(high, index)
            parts.append(_mark("line", "whisker", x1=x0, y1=y, x2=x1, y2=y))
        if total and index == len(rows) - 1:
            parts.append(_mark("path", "total", hover=hover, d=f"M{x - 8} {y}l8 -7 8 7 -8 7z"))
        else:
            parts.append(_mark("rect", "value", hover=hover, x=x - 4.5, y=y - 4.5, width=9, height=9))
    return _picture(title, axes, parts, "; ".join(f"{name} {value:.3f}" for name, value, *_ in rows) + ".")


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    strength: Callable[[float], float] = float,
    form: str = ".2f",
) -> Markup:
    """Return a table of colours, in which each cell says its value.

    Args:
        strength: of the colour of a value, from 0 to 1; the value itself unless told otherwise.
        form: of a value as text.
    """
    left, top, wide, high = 270, 24, 92, 26
    area = Axes((0, 1), (0, 1), width=left + wide * len(columns), height=top + high * len(rows))
    parts = [_mark("text", "tick", name, x=left + wide * (place + 0.5), y=16) for place, name in enumerate(columns)]
    for line, (name, cells) in enumerate(zip(rows, values, strict=True)):
        y = top + high * line
        parts.append(_mark("text", "name", name, x=left - 8, y=y + 17))
        for place, value in enumerate(cells):
            x, hover = left + wide * place, f"{name}, {columns[place]}: {value:{form}}"
            strong = round(0.05 + 0.7 * strength(value), 3)
            parts += [
                _mark(
                    "rect", "heat", hover=hover, x=x + 1, y=y + 1, width=wide - 2, height=high - 2, fill_opacity=strong
                ),
                _mark("text", "cell", f"{value:{form}}", x=x + wide / 2, y=y + 17),
            ]
    worst = max(
        ((v, row, c) for row, cells in zip(rows, values, strict=True) for c, v in zip(columns, cells, strict=True))
    )
    said = f"{len(rows)} rows by {len(columns)} columns; the highest is {worst[0]:{form}}: {worst[1]}, {worst[2]}."
    return _picture(title, area, parts, said)


def _picture(title: str, axes: Axes, parts: Sequence[Markup], description: str) -> Markup:
    own = f"chart{next(_numbers)}"
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d">'
        '<title id="{}-t">{}</title><desc id="{}-d">{}</desc>{}</svg>'
    ).format(axes.width, axes.height, own, own, own, title, own, description, Markup("").join(parts))


def _frame(
    axes: Axes, xlabel: str, ylabel: str, *, whole_x: bool = False, xticks: bool = True, yticks: bool = True
) -> Markup:
    """Draw the grid, the ticks and the labels."""
    parts = []
    bottom = axes.height - _BOTTOM
    for tick in _ticks(*axes.x, whole=whole_x) if xticks else ():
        x, _ = axes.place(tick, axes.y[0])
        parts.append(_mark("line", "grid", x1=x, y1=_TOP, x2=x, y2=bottom))
        parts.append(_mark("text", "tick", f"{tick:g}", x=x, y=bottom + 16))
    for tick in _ticks(*axes.y) if yticks else ():
        _, y = axes.place(axes.x[0], tick)
        parts.append(_mark("line", "grid", x1=axes.left, y1=y, x2=axes.width - _RIGHT, y2=y))
        parts.append(_mark("text", "ytick", f"{tick:g}", x=axes.left - 6, y=y + 4))
    middle = (axes.left + axes.width - _RIGHT) / 2
    parts.append(_mark("text", "label", xlabel, x=middle, y=axes.height - 6))
    if ylabel:
        up = (_TOP + bottom) / 2
        parts.append(_mark("text", "label", ylabel, x=12, y=up, transform=f"rotate(-90 12 {up})"))
    return Markup("").join(parts)


def _shape(axes: Axes, points: Points, kind: str, element: str = "polyline") -> Markup:
    return _mark(element, kind, points=" ".join("{},{}".format(*axes.place(x, y)) for x, y in points))


def _dot(axes: Axes, x: float, y: float, kind: str, hover: str) -> Markup:
    across, up = axes.place(x, y)
    return _mark("circle", kind, hover=hover, cx=across, cy=up, r=3.2)


def _mark(element: str, kind: str, content: str = "", *, hover: str = "", **attributes: float | str) -> Markup:
    """Return an element of the class ``kind`` with its text, and with what it says under the mouse."""
    named = Markup("").join(Markup(' {}="{}"').format(n.replace("_", "-"), value) for n, value in attributes.items())
    said = Markup("<title>{}</title>").format(hover) if hover else ""
    return Markup('<{0} class="{1}"{2}>{3}{4}</{0}>').format(element, kind, named, said, content)


def _nice_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    step = _step(high - min(low, 0))
    return math.floor(min(low, 0) / step) * step, math.ceil(high / step) * step


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    step = max(_step(high - low), 1.0) if whole else _step(high - low)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _step(span: float) -> float:
    """Return a round step that divides a span into about five."""
    if span <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if span / (factor * power) <= 6)
