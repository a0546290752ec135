"""FLamby's loader beside ours: that the figures are there, not what they are."""

import os
from pathlib import Path
from types import ModuleType

from fedmr_med.lab.perf.loading import loader_speedups
from tests.helpers.errors import raises

SIZES = {"images": 4, "image_size": 200, "batch_size": 2, "repetitions": 1}


def test_flambys_loader_is_measured_too(flamby_strategies: ModuleType, tmp_path: Path) -> None:
    checkout = Path(flamby_strategies.__file__ or "").parents[2]
    figures = [f for f in loader_speedups(tmp_path, **SIZES, flamby=checkout) if f.name == "loader_speedup_flamby"]
    assert [figure.subject for figure in figures] == ["train", "fast", "test"]
    assert all(figure.value > 0 for figure in figures)
    assert os.environ["NO_ALBUMENTATIONS_UPDATE"] == "1"


def test_a_folder_that_is_not_flamby_is_named(tmp_path: Path) -> None:
    with raises("file.wrong-kind", "--flamby"):
        loader_speedups(tmp_path, **SIZES, flamby=tmp_path / "nothing")
