"""The report page and its curves."""

from html.parser import HTMLParser

from fedmr_med.report.curves import accuracy_series, as_svg, draw_curves
from fedmr_med.report.html import Page, PageTable, Picture, render
from tests.helpers.results import run_of


class Cells(HTMLParser):
    """Collects the text of table cells and complains about tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("table", "tr", "td", "th", "thead", "tbody", "body", "html"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("table", "tr", "td", "th", "thead", "tbody", "body", "html"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


def test_a_page_holds_its_tables_and_escapes_all_text() -> None:
    table = PageTable("A <title>", ("name", "value"), [("<b>", "1"), ("x", "2")], caption="5 < 6")
    page = render(Page("T & T", notes=["a note"], tables=[table], errors=["<script>"]))
    parser = Cells()
    parser.feed(page)
    assert parser.cells == ["name", "value", "<b>", "1", "x", "2"]
    assert not parser.open
    assert "<script>" not in page
    assert "T &amp; T" in page
    assert "5 &lt; 6" in page


def test_curves_are_the_same_text_for_the_same_figures() -> None:
    series = accuracy_series([run_of(0.1 * seed, 0.5, None) for seed in (1, 2)])
    assert series == {"a": [[10.0, 50.0], [20.0, 50.0]]}
    first, second = (as_svg(draw_curves(series, ylabel="accuracy, %", title="t")) for _ in range(2))
    assert first == second
    assert first.startswith("<svg")
    page = render(Page("t", pictures=[Picture("curves", first)]))
    assert first in page


def test_runs_of_different_length_are_drawn_as_far_as_all_go() -> None:
    figure = draw_curves({"a": [[1.0, 2.0, 3.0], [1.0, 2.0]]}, ylabel="y")
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [1, 2]
    assert draw_curves({}, ylabel="y").axes
