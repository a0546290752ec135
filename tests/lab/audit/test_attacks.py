"""Each attack succeeds where there is something to find, and finds nothing where nothing leaves."""

import numpy as np
import pytest
import torch

from fedmr_med.lab.audit.attacks import counts, images, inversion
from fedmr_med.lab.audit.attacks.images import Guess, nearness
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums

LABELS = np.array([0] * 20 + [1] * 5 + [2])
FEATURES = np.random.default_rng(0).normal(1, 1, (26, 4))
COUNTS = np.array([20, 5, 1])
NAMES = ("a", "b", "c")
PLAIN = ClassSums.from_features(torch.from_numpy(FEATURES), torch.from_numpy(LABELS), 3)


def plain(features: np.ndarray, labels: np.ndarray) -> ClassSums:
    return ClassSums.from_features(torch.from_numpy(features), torch.from_numpy(labels), 3)


def test_counts_are_read_from_plain_sums() -> None:
    assert counts.counts_read(PLAIN, COUNTS) == 1
    assert counts.counts_read(None, COUNTS) == 0


def test_subtraction_finds_withheld_images_in_exact_numbers_only() -> None:
    shared = PLAIN.only(torch.tensor([True, False, False]))
    assert counts.withheld_by_subtraction(shared, 26, COUNTS) == 1
    assert counts.withheld_by_subtraction(shared, 30, COUNTS) == 0


def test_the_bias_of_one_large_step_tells_the_histogram() -> None:
    assert counts.histogram_from_bias(1 / 3 - COUNTS / 26, np.zeros(3), COUNTS) == 1


def test_two_rounds_tell_class_and_feature_of_the_image_between_them() -> None:
    found = counts.two_rounds(plain, FEATURES, LABELS, np.array([0, 21]))
    assert found.label == 1
    assert found.feature == pytest.approx(1)
    assert counts.two_rounds(lambda f, y: None, FEATURES, LABELS, np.array([0])) == counts.TwoRounds(0, 0)


def test_differencing_tries_rare_classes_as_often_as_frequent_ones() -> None:
    chosen = counts.one_of_each_class(LABELS, 5)
    assert sorted(LABELS[chosen].tolist()) == [0, 0, 1, 1, 2]
    assert len(set(chosen.tolist())) == 5


def test_two_policies_tell_a_withheld_count_unless_it_is_rounded() -> None:
    """The number of images that leaves is made so that opting a small class out does not tell its size."""
    policy = SitePolicy(share_prototypes=True, min_class_count=11)
    shared = PLAIN.only(torch.tensor([True, False, False]))
    assert counts.two_policies(shared, policy, NAMES, COUNTS) == 0
    told = PLAIN.only(torch.tensor([True, False, True]))
    ten = np.array([20, 10, 1])  # rounding to ten hides no ten, which an attacker cannot tell from 1 to 14
    assert counts.two_policies(told, policy, NAMES, ten) == 1


def test_the_class_with_one_image_is_that_image() -> None:
    assert images.is_one_image(PLAIN, FEATURES) == pytest.approx(1 / 3)
    assert images.is_one_image(None, FEATURES) == 0


def test_features_that_hardly_differ_are_not_taken_for_one_another() -> None:
    close = 100 + 1e-3 * FEATURES
    assert images.is_one_image(plain(close, LABELS), close) == pytest.approx(1 / 3)


def test_the_nearest_candidate_of_a_small_class_is_a_training_image() -> None:
    others = np.random.default_rng(1).normal(1, 1, (40, 4))
    only = plain(FEATURES, LABELS).only(torch.tensor([False, False, True]))
    assert images.nearest_match(only, (FEATURES, LABELS), (others, np.full(40, 2))) == 1
    assert images.nearest_match(only, (FEATURES, LABELS), (FEATURES[:25], LABELS[:25])) == 0, "nobody to compare with"


def test_a_match_that_chance_gives_as_well_counts_for_nothing() -> None:
    """A prototype of random numbers, as a masked vector read as if it were not masked, and few others to compare."""
    found = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        others = generator.normal(1, 1, (3, 4)), np.array([0, 1, 2])
        noise = ClassSums(torch.from_numpy(generator.normal(0, 1e6, (3, 4))), torch.from_numpy(COUNTS))
        found.append(images.nearest_match(noise, (FEATURES, LABELS), others))
    assert np.count_nonzero(found) <= 3, "one in twenty is expected"


def test_the_nearest_candidate_of_a_large_class_is_a_matter_of_chance() -> None:
    generator = np.random.default_rng(2)
    inside, outside = generator.normal(0, 1, (2, 4000, 3))
    rates = [images.match_rate(inside[i : i + 400].mean(0), inside[i : i + 400], outside[i : i + 400], seed=i)
             for i in range(0, 4000, 400)]  # fmt: skip
    assert abs(float(np.mean(rates)) - 0.5) < 0.35


def test_membership_by_prototype_is_better_than_a_coin_for_small_classes() -> None:
    others = FEATURES + np.random.default_rng(1).normal(0, 3, FEATURES.shape)
    guess = Guess("prototype", "none", nearness(PLAIN, FEATURES, LABELS), nearness(PLAIN, others, LABELS))
    assert guess.advantage > 0.3
    assert len(nearness(None, FEATURES, LABELS)) == 0


def test_equal_scores_are_no_advantage() -> None:
    assert Guess("a", "b", np.ones(5), np.ones(50)).area == 0.5


def test_inversion_finds_the_picture_behind_a_feature_that_tells_it_and_not_behind_a_mean() -> None:
    """A feature that is a linear image of all pixels gives the picture back; the mean of many gives none of them."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.nn.functional.avg_pool2d(torch.randn(40, 1, 12, 12, generator=generator), 3, 1, 1)
    mixing = torch.randn(144, 144, generator=generator) / 12

    def features_of(batch: torch.Tensor) -> torch.Tensor:
        return batch.flatten(1) @ mixing

    of_one, of_many = features_of(pictures[:1]), features_of(pictures[:20]).mean(0, keepdim=True)
    made = inversion.invert(features_of, torch.cat([of_one, of_many]), (1, 12, 12), steps=150)
    alike = inversion.similarity(made, pictures)
    assert inversion.likeness(alike[0, :1], alike[0, 20:]) > 0.5
    assert inversion.likeness(alike[1, :20], alike[1, 20:]) < 0.3


def test_likeness_is_one_for_a_copy_and_zero_for_what_any_image_gets() -> None:
    assert inversion.likeness(np.array([1.0]), np.array([0.3, 0.4])) == pytest.approx(1)
    same = np.linspace(0, 0.8, 30)
    assert inversion.likeness(same, same) < 0.05
