"""What is read from totals with noise: no direction that is noise alone."""

import numpy as np
import torch

from fedmr_med.prototypes import ClassSums
from fedmr_med.wire.totals import noisy_statistics

SIZE, NOISE = 60, 3.0


def moments(signal: np.ndarray, seed: int) -> np.ndarray:
    upper = np.triu_indices(SIZE)
    return signal[upper] + NOISE * np.random.default_rng(seed).normal(size=len(upper[0]))


def test_directions_of_noise_alone_have_the_variance_that_noise_gives() -> None:
    none = ClassSums.zeros(3, SIZE)
    edge = 2 * NOISE * SIZE**0.5
    values = torch.linalg.eigvalsh(noisy_statistics(none, moments(np.zeros((SIZE, SIZE)), 0), NOISE).scatter)
    assert float(values.min()) >= edge * (1 - 1e-9)
    assert float(values.max()) < 1.3 * edge


def test_directions_above_the_noise_stay() -> None:
    none, signal = ClassSums.zeros(3, SIZE), np.zeros((SIZE, SIZE))
    signal[5, 5] = 1e4
    scatter = noisy_statistics(none, moments(signal, 1), NOISE).scatter
    assert abs(float(scatter[5, 5]) - 1e4) < 100
