"""Streams of random numbers and threads."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.errors import ConfigError
from fedmr_med.runtime import derive_seed, kept_memory, numpy_generator, set_threads, torch_stream


def test_streams_are_reproducible_and_distinct() -> None:
    assert derive_seed(0, "bcn", 1) == derive_seed(0, "bcn", 1) == 1342105402359501686
    seeds = {derive_seed(*stream) for stream in [(0, "a"), (0, "b"), (1, "a"), ("0", "a"), (0, "a", 0)]}
    assert len(seeds) == 5
    assert numpy_generator(3).random() == numpy_generator(3).random()


def test_a_torch_stream_leaves_the_global_generator_as_it_was() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    with torch_stream(0, "site"):
        inside = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with torch_stream(0, "site"):
        assert torch.equal(torch.rand(2), inside)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.delenv("FEDMR_MED_THREADS", raising=False)
        assert set_threads(default=1) == torch.get_num_threads() == 1
        monkeypatch.setenv("FEDMR_MED_THREADS", "2")
        assert set_threads(default=1) == torch.get_num_threads() == 2
        monkeypatch.setenv("FEDMR_MED_THREADS", "many")
        with pytest.raises(ConfigError, match="FEDMR_MED_THREADS"):
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
