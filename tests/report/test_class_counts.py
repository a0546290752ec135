"""Heat maps of who holds what."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmr_med.data.describe import Description, SiteSummary, describe
from fedmr_med.data.partition import counts_table, pcdd
from fedmr_med.report.class_counts import draw_counts, draw_sites


@pytest.mark.parametrize("clients", [5, 120])
def test_the_picture_of_the_counts_is_a_png(clients: int, tmp_path: Path) -> None:
    labels = np.repeat(np.arange(10), 200)
    table = counts_table(pcdd(labels, clients, 2, 0), labels, 10)
    names = [str(client) for client in range(clients)]
    draw_counts(table, tmp_path / "counts.png", clients=names, classes=[str(c) for c in range(10)], title="P5C2")
    with Image.open(tmp_path / "counts.png") as image:
        assert image.format == "PNG"
        assert min(image.size) > 200
        assert len(image.convert("RGB").getcolors(1 << 24)) > 20


def test_the_picture_of_the_sites_is_a_png(tmp_path: Path) -> None:
    draw_sites(describe("demo"), tmp_path / "table.png")
    with Image.open(tmp_path / "table.png") as image:
        assert image.format == "PNG"
        assert np.asarray(image.convert("L")).std() > 20


def test_the_picture_of_an_empty_site(tmp_path: Path) -> None:
    empty = SiteSummary("new", np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64))
    draw_sites(Description(("a", "b"), (empty,)), tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 0
