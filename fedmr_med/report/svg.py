"""Charts as inline SVG: no script, no font, no file from elsewhere. Points say their value under the mouse."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from markupsafe import Markup

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 42
_LONGEST_NAME = 28  # of a row, in characters
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
        yrange: of the y axis; None fits it to the values.
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


def square(title: str, series: Mapping[str, Points], *, xlabel: str, ylabel: str) -> Markup:
    """Return a chart of lines from 0 to 1 with its diagonal, such as ROC curves."""
    axes = Axes((0, 1), (0, 1), width=360, height=348)
    parts = [_frame(axes, xlabel, ylabel), _shape(axes, [(0, 0), (1, 1)], "diagonal")]
    parts += [_shape(axes, line, f"l{index % 8}") for index, line in enumerate(series.values())]
    return _picture(title, axes, parts, f"{len(series)} curves: {', '.join(series)}.")


def reliability(title: str, points: Sequence[tuple[float, float, int]], *, color: int) -> Markup:
    """Return a small chart of points (predicted frequency, observed one, images); dots are as large as the last."""
    axes = Axes((0, 1), (0, 1), width=220, height=208, left=46)
    parts = [_frame(axes, "predicted", "observed"), _shape(axes, [(0, 0), (1, 1)], "diagonal")]
    total = sum(images for *_, images in points) or 1
    for x, y, images in points:
        hover = f"{title}: predicted {x:.2f}, observed {y:.2f}, {images} images"
        parts.append(_dot(axes, x, y, f"d{color % 8} see-through", hover, radius=2 + 14 * math.sqrt(images / total)))
    return _picture(title, axes, parts, f"Reliability in {len(points)} bins.")


def scatter(title: str, groups: Mapping[str, Points]) -> Markup:
    """Return points by group in a square from -1 to 1."""
    axes = Axes((-1, 1), (-1, 1), width=360, height=348)
    dots = (_dot(axes, x, y, f"d{i % 8}", name) for i, (name, points) in enumerate(groups.items()) for x, y in points)
    return _picture(title, axes, [_frame(axes, "", ""), *dots], f"{len(groups)} groups: {', '.join(groups)}.")


def bars(
    title: str, places: Sequence[str], series: Mapping[str, Sequence[tuple[float, float] | None]], *, ylabel: str
) -> Markup:
    """Return bars from 0 to 1, by name a value and its deviation side by side at each place; None leaves one out."""
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
    left = 16 + round(7.2 * max((len(_short(name)) for name, *_ in rows), default=0))
    axes = Axes((0, 1), (len(rows) - 0.5, -0.5), width=480, height=height, left=left)
    parts = [_frame(axes, xlabel, "", yticks=False)]
    for index, (name, value, low, high) in enumerate(rows):
        x, y = axes.place(value, index)
        hover = f"{name}: {value:.3f}" + ("" if low is None or high is None else f" ({low:.3f} to {high:.3f})")
        parts.append(_mark("text", "name", _short(name), x=axes.left - 8, y=y + 4))
        if low is not None and high is not None:
            (x0, _), (x1, _) = axes.place(low, index), axes.place(high, index)
            parts.append(_mark("line", "whisker", x1=x0, y1=y, x2=x1, y2=y))
        if total and index == len(rows) - 1:
            parts.append(_mark("path", "total", hover=hover, d=f"M{x - 8} {y}l8 -7 8 7 -8 7z"))
        else:
            parts.append(_mark("rect", "value", hover=hover, x=x - 4.5, y=y - 4.5, width=9, height=9))
    return _picture(title, axes, parts, "; ".join(f"{name} {value:.3f}" for name, value, *_ in rows) + ".")


def plane(title: str, points: Mapping[str, tuple[float, float]]) -> Markup:
    """Return named points at their distances from each other; the axes mean nothing."""
    reach = 1.25 * max((abs(value) for point in points.values() for value in point), default=1.0)
    axes = Axes((-reach, reach), (-reach, reach), width=420, height=300, left=_RIGHT)
    parts = []
    for index, (name, (x, y)) in enumerate(points.items()):
        across, up = axes.place(x, y)
        parts.append(_dot(axes, x, y, f"d{index % 8}", name))
        parts.append(_mark("text", "tick", name, x=across, y=up - 8))
    return _picture(title, axes, parts, f"{len(points)} points: {', '.join(points)}.")


def strips(title: str, rows: Mapping[str, Sequence[tuple[str, str]]]) -> Markup:
    """Return a line of cells per name, one for each round: of each its class, and what it says under the mouse."""
    most = max(map(len, rows.values()), default=1)
    left, top, high = 200, 6, 24
    wide = (_WIDTH - left - _RIGHT) / max(most, 12)
    axes = Axes((0, 1), (0, 1), height=top + high * len(rows) + _BOTTOM)
    parts = []
    for line, (name, cells) in enumerate(rows.items()):
        y = top + high * line
        parts.append(_mark("text", "name", _short(name), x=left - 8, y=y + 17))
        for place, (kind, said) in enumerate(cells, start=1):
            hover, x = f"{name}, round {place}: {said}", round(left + wide * (place - 1), 1)
            width = round(max(wide - 2, 1), 1)
            parts.append(_mark("rect", kind, hover=hover, x=x, y=y + 2, width=width, height=high - 4))
    below = top + high * len(rows) + 16
    for tick in sorted({1, *(int(t) for t in _ticks(1, max(most, 2), whole=True)), most}):
        parts.append(_mark("text", "tick", str(tick), x=round(left + wide * (tick - 0.5), 1), y=below))
    parts.append(_mark("text", "label", "round", x=left + wide * most / 2, y=below + 18))
    return _picture(title, axes, parts, f"{len(rows)} rows, {most} cells each: {', '.join(rows)}.")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


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


def _dot(axes: Axes, x: float, y: float, kind: str, hover: str, radius: float = 3.2) -> Markup:
    across, up = axes.place(x, y)
    return _mark("circle", kind, hover=hover, cx=across, cy=up, r=round(radius, 1))


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
