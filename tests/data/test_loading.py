"""Batches are the same whatever the number of workers, and every item comes once per epoch."""

import numpy as np
import pytest
import torch

from fedmr_med.data.base import Fold
from fedmr_med.data.loading import Batches
from fedmr_med.data.transforms import build

STREAM = (0, "msk", 3, 1)


def numbered_fold(count: int) -> Fold:
    """A fold whose item i is filled with the value i and has label i."""
    items = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 9, 9, 3))
    return Fold(items, np.arange(count, dtype=np.int64))


def batches(count: int, batch_size: int = 4, **options: int) -> Batches:
    return Batches(numbered_fold(count), build("plain", train=False, image_size=8), batch_size=batch_size, **options)


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_has_every_item_once_with_its_label(count: int, shuffle: bool) -> None:
    loader = batches(count)
    epoch = list(loader.epoch(*STREAM, shuffle=shuffle))
    assert len(epoch) == len(loader) == -(-count // 4)
    images, labels = (torch.cat(parts) for parts in zip(*epoch, strict=True))
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert images.shape == (count, 3, 8, 8)
    assert sorted(labels.tolist()) == list(range(count))
    assert torch.equal(((images[:, 0, 0, 0] + 1) * 127.5).round().long(), labels)
    if not shuffle:
        assert labels.tolist() == list(range(count))


def test_order_depends_on_the_stream_alone() -> None:
    loader = batches(40)

    def order(*stream: int | str) -> list[int]:
        return torch.cat([labels for _, labels in loader.epoch(*stream, shuffle=True)]).tolist()

    first = order(0, "msk", 0, 0)
    assert order(0, "msk", 0, 0) == first
    others = [order(1, "msk", 0, 0), order(0, "bcn", 0, 0), order(0, "msk", 1, 0), order(0, "msk", 0, 1)]
    assert first not in others


def test_augmentation_depends_on_stream_and_item_not_on_the_batch() -> None:
    fold = Fold(np.random.default_rng(0).integers(0, 256, (7, 40, 40, 3), dtype=np.uint8), np.arange(7))
    transform = build("isic", train=True, image_size=32)

    def by_label(batch_size: int, *stream: int | str) -> dict[int, bytes]:
        epoch = Batches(fold, transform, batch_size=batch_size).epoch(*stream, shuffle=True)
        return {int(y): x.numpy().tobytes() for xs, ys in epoch for x, y in zip(xs, ys, strict=True)}

    assert by_label(2, *STREAM) == by_label(5, *STREAM)
    assert by_label(2, *STREAM) != by_label(2, 0, "msk", 3, 2)


@pytest.mark.parametrize(("count", "expected"), [(9, [4, 4]), (10, [4, 4, 2]), (8, [4, 4]), (1, [])])
def test_a_single_last_item_can_be_dropped(count: int, expected: list[int]) -> None:
    sizes = [len(labels) for _, labels in batches(count).epoch(*STREAM, shuffle=True, drop_single=True)]
    assert sizes == expected


def test_an_empty_fold_has_no_batches() -> None:
    loader = batches(0)
    assert len(loader) == 0
    assert list(loader.epoch(*STREAM, shuffle=True)) == []


@pytest.mark.slow
def test_worker_processes_give_the_same_batches_in_every_epoch_even_after_one_was_abandoned() -> None:
    fold = Fold(np.random.default_rng(0).integers(0, 256, (11, 40, 40, 3), dtype=np.uint8), np.arange(11))
    transform = build("isic", train=True, image_size=32)
    alone = Batches(fold, transform, batch_size=3)
    helped = Batches(fold, transform, batch_size=3, workers=2)
    for _ in helped.epoch(0, "site", 0, 99, shuffle=True):
        break
    for epoch in range(2):
        stream = (0, "site", 0, epoch)
        pairs = list(zip(alone.epoch(*stream, shuffle=True), helped.epoch(*stream, shuffle=True), strict=True))
        assert len(pairs) == 4
        for (images, labels), (other_images, other_labels) in pairs:
            assert torch.equal(images, other_images)
            assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("edge", [8, 12, 15])
@pytest.mark.parametrize("channels", [1, 3])
def test_plain_images_of_an_array_are_made_together_with_the_same_bits(edge: int, channels: int) -> None:
    drawn = np.random.default_rng(edge)
    fold = Fold(drawn.integers(0, 256, (20, 12, 12, channels), dtype=np.uint8), np.arange(20))
    part = fold.subset(np.arange(20)[::-1]).subset(np.array([3, 0, 7, 7, 12]))
    transform = build("plain", train=False, image_size=edge)
    for whole in (fold, part):
        images = np.concatenate([x.numpy() for x, _ in Batches(whole, transform, batch_size=4).epoch(0, shuffle=False)])
        assert images.dtype == np.float32
        np.testing.assert_array_equal(images, np.stack([transform(whole[row], 0) for row in range(len(whole))]))
