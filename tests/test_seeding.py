import torch

from fedmr_med.seeding import derive_seed, numpy_generator, torch_stream


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
