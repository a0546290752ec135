"""Sets hold the right class as often as asked: exactly of single scores, and of groups as far as was measured."""

from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.evaluation.clinical import BINS, EDGES, ScoreHistograms, bins_of, softmax
from fedmr_med.evaluation.sets import COVERAGES, key_of, least_probabilities, set_thresholds, sets_of
from tests.helpers.pooled_auroc import SITUATIONS
from tests.helpers.set_coverage import held

LOGITS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(seed=LOGITS, images=st.integers(0, 300), misses=st.floats(0.001, 0.5), scale=st.sampled_from([0.3, 3.0, 30.0]))
def test_a_threshold_is_the_edge_below_numpys_quantile_of_the_single_scores(
    seed: int, images: int, misses: float, scale: float
) -> None:
    logits = scale * np.random.default_rng(seed).normal(size=(images, 3))
    labels = np.zeros(images, dtype=np.int64)
    scores = softmax(logits)[:, 0]
    counted = ScoreHistograms.of(logits, labels).positives
    rank = int(misses * (images + 1) + 1e-9)
    least = least_probabilities(counted, misses)
    assert (least[1:] == 0).all(), "a class without images is in every set"
    if rank == 0:
        assert least[0] == 0
        return
    exact = np.quantile(scores, (rank - 0.5) / images, method="inverted_cdf")
    low = int(bins_of(np.array([exact]))[0])
    assert EDGES[low] == least[0] <= exact <= EDGES[low + 1]


@settings(max_examples=30, deadline=None)
@given(seed=LOGITS, hospitals=st.integers(1, 4))
def test_a_larger_coverage_only_adds_classes_and_hospitals_add_up(seed: int, hospitals: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, 200)
    logits = generator.normal(size=(200, 4)) + np.eye(4)[labels]
    parts = [ScoreHistograms.of(*part) for part in zip(
        np.array_split(logits, hospitals), np.array_split(labels, hospitals), strict=True
    )]  # fmt: skip
    made = set_thresholds(reduce(add, parts).positives)
    assert made == set_thresholds(ScoreHistograms.of(logits, labels).positives)
    sets = [sets_of(logits, np.array(made[key_of(coverage)])) for coverage in COVERAGES]
    assert all((more | less == more).all() for less, more in pairwise(sets))


@pytest.mark.parametrize("images", [9, 25, 100])
@pytest.mark.parametrize("misses", [0.05, 0.1, 0.2])
def test_new_images_of_each_class_are_held_as_often_as_said(images: int, misses: float) -> None:
    """Over many draws of the images that make a threshold; the reference is numpy's quantile of the single scores."""
    generator, runs, classes = np.random.default_rng(3), 400, 3
    labels = np.repeat(np.arange(classes), images)
    found, reference = [], []
    for _ in range(runs):
        logits, new = (
            2 * (generator.normal(size=(classes * images, classes)) + np.eye(classes)[labels]) for _ in range(2)
        )
        least = least_probabilities(ScoreHistograms.of(logits, labels).positives, misses)
        sets, scores, fresh = sets_of(new, least), softmax(logits), softmax(new)
        rank = int(misses * (images + 1) + 1e-9)
        for label in range(classes):
            rows = labels == label
            exact = np.quantile(scores[rows, label], (rank - 0.5) / images, method="inverted_cdf") if rank else 0
            found.append(sets[rows, label].mean())
            reference.append((fresh[rows, label] >= exact).mean())
    error = 3 * np.std(found, ddof=1) / np.sqrt(len(found))
    assert np.mean(found) >= 1 - misses - error
    assert np.mean(reference) <= np.mean(found) <= np.mean(reference) + 0.02, "the edge of a bin costs little"


@pytest.mark.parametrize(("sharpness", "apart"), SITUATIONS.values(), ids=SITUATIONS)
@pytest.mark.parametrize("least", [1, 11])
def test_with_its_margin_a_set_holds_what_was_asked_in_groups_too(sharpness: float, apart: float, least: int) -> None:
    found = np.mean([held(seed, sharpness=sharpness, apart=apart, least=least) for seed in range(8)], axis=0)
    assert (found >= np.array(COVERAGES)[:, None] - 0.02).all(), found.round(3)


def test_without_the_margin_groups_of_a_sure_network_hold_less() -> None:
    """So the margin is needed."""
    found = np.mean([held(seed, sharpness=10, apart=0, least=11, share=1.0) for seed in range(8)], axis=0)
    assert found[COVERAGES.index(0.9)].min() < 0.87


def test_a_set_can_be_empty() -> None:
    assert not sets_of(np.zeros((1, 2)), np.array([0.6, 0.6])).any()
    assert sets_of(np.array([[3.0, 0.0]]), np.array([0.6, 0.0])).tolist() == [[True, True]]
    assert least_probabilities(np.zeros((2, BINS), dtype=np.int64), 0.5).tolist() == [0, 0]
