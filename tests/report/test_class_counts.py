"""Pages of who holds what."""

import re
from pathlib import Path

import numpy as np

from fedmr_med.data.describe import Description, SiteSummary, describe
from fedmr_med.report.class_counts import write_counts
from fedmr_med.report.elements import DEMO_NOTE


def test_the_page_says_the_count_of_every_site_and_class(tmp_path: Path) -> None:
    description = describe("demo")
    write_counts(description, tmp_path / "table.html")
    page = (tmp_path / "table.html").read_text()
    for site in description.sites:
        for name, count in zip(description.class_names, site.counts("train"), strict=True):
            assert re.search(rf'>{site.name}</th>(<td.*?)?<td data-column="{name}" class="[^"]*">{count}</td>', page)
    assert DEMO_NOTE in page


def test_an_empty_site_has_a_page_too(tmp_path: Path) -> None:
    empty = SiteSummary("new", np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64))
    write_counts(Description(("a", "b"), (empty,)), tmp_path / "table.html")
    assert re.search(r'<td data-column="b" class="[^"]*">0</td>', (tmp_path / "table.html").read_text())
