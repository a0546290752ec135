import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.process import available_cores, kept_memory, set_threads
from tests.helpers.errors import raises


def test_omp_num_threads_decides_before_any_default(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert set_threads(default=1) == torch.get_num_threads() == 1
        assert set_threads() == available_cores()
        for text, threads in (("2", 2), ("3,1", 3)):
            monkeypatch.setenv("OMP_NUM_THREADS", text)
            assert set_threads(default=1) == torch.get_num_threads() == threads
        for text in ("many", "0"):
            monkeypatch.setenv("OMP_NUM_THREADS", text)
            with raises("config.value", "OMP_NUM_THREADS"):
                set_threads()
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_freed_memory_is_kept_inside_and_given_back_after_the_outermost() -> None:
    def megabytes() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

    size = 200
    before = megabytes()
    with kept_memory():
        with kept_memory():
            np.ones(size * 125_000)
        assert megabytes() > before + size / 2, "kept, although the inner body is over"
    assert megabytes() < before + size / 2
