"""Charts: what they show is in the text of the picture."""

import re
from xml.etree import ElementTree

from fedmr_med.report.pages.comparison import seed_curves, seeds_chart
from fedmr_med.report.svg import bars, plane, scatter, strips
from tests.helpers.results import run_of


def titles(svg: str) -> list[str | None]:
    """Return what the marks of a chart say under the mouse; a chart that is not well-formed raises."""
    return [element.text for element in ElementTree.fromstring(svg).iter("title")][1:]


def test_curves_show_the_mean_of_the_seeds_and_their_band() -> None:
    series = seed_curves([run_of(0.1 * seed, 0.5, None) for seed in (1, 2)])
    assert series == {"a": [[0.0, 40.0], [10.0, 40.0]]}
    chart = seeds_chart("t", series, ylabel="accuracy, %")
    assert re.findall(r"<title>(a: [^<]*)", chart) == ["a: 5 at round 1", "a: 40 at round 2"]
    assert chart.count("<polygon") == 1


def test_runs_of_different_length_are_drawn_as_far_as_all_go() -> None:
    chart = seeds_chart("t", {"a": [[1.0, 2.0, 3.0], [1.0, 2.0]]}, ylabel="y")
    assert "round 2" in chart and "round 3" not in chart
    assert seeds_chart("t", {}, ylabel="y") is None


def test_bars_leave_out_what_was_not_measured() -> None:
    chart = bars("t", ["pooled", "a <b>"], {"x": [(0.5, 0.1), None], "y": [(0.25, 0), (1, 0)]}, ylabel="score")
    assert titles(chart) == ["x, pooled: 0.500 ± 0.100", "y, pooled: 0.250 ± 0.000", "y, a <b>: 1.000 ± 0.000"]
    heights = [float(rect.attrib["height"]) for rect in ElementTree.fromstring(chart).iter("rect")]
    assert heights[0] * 2 == heights[2] and heights[1] * 4 == heights[2]


def test_every_point_has_the_colour_of_its_group() -> None:
    chart = scatter("t", {"one": [(0, 0)], "two": [(1, 1), (-1, -1)]})
    dots = ElementTree.fromstring(chart).findall("circle")
    assert [dot.attrib["class"] for dot in dots] == ["d0", "d1", "d1"]
    assert titles(chart) == ["one", "two", "two"]


def test_a_strip_has_a_cell_for_each_round_and_a_plane_a_name_for_each_point() -> None:
    chart = strips("t", {"nord": [("sent-all", "2 of 2"), ("absent", "took no part")]})
    assert titles(chart) == ["nord, round 1: 2 of 2", "nord, round 2: took no part"]
    assert [r.attrib["class"] for r in ElementTree.fromstring(chart).iter("rect")] == ["sent-all", "absent"]
    dots = ElementTree.fromstring(plane("t", {"a": (0, 0), "b": (3, 4)})).findall("circle")
    assert [dot.attrib["cx"] < dots[-1].attrib["cx"] for dot in dots] == [True, False]
