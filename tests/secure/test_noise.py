"""Noise that nobody can predict has the distribution that the accountant counts with."""

import numpy as np
from scipy import stats

from fedmr_med.secure.noise import normals, uniforms

FAR = 1e-9
"""Below this chance a test fails by bad luck once in a thousand million runs."""


def test_normal_numbers_are_normal() -> None:
    numbers = normals((200, 100))
    assert numbers.shape == (200, 100)
    assert stats.kstest(numbers.ravel(), "norm").pvalue > FAR
    assert abs(np.corrcoef(numbers[:100].ravel(), numbers[100:].ravel())[0, 1]) < 0.1


def test_uniform_numbers_are_uniform_and_never_the_ends() -> None:
    numbers = uniforms(20_000)
    assert stats.kstest(numbers, "uniform").pvalue > FAR
    assert 0 < numbers.min() < numbers.max() < 1


def test_no_two_calls_give_the_same_numbers() -> None:
    assert not np.array_equal(normals((4,)), normals((4,)))
