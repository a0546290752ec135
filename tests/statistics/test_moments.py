"""What is read from totals with noise: no direction that is noise alone."""

import numpy as np
import torch

from fedmr_med.statistics.head import symmetric
from fedmr_med.statistics.moments import above_noise

SIZE, NOISE = 60, 3.0


def noisy(signal: np.ndarray, seed: int) -> torch.Tensor:
    upper = np.triu_indices(SIZE)
    triangle = signal[upper] + NOISE * np.random.default_rng(seed).normal(size=len(upper[0]))
    return symmetric(torch.from_numpy(triangle), SIZE)


def test_directions_of_noise_alone_have_the_variance_that_noise_gives() -> None:
    edge = 2 * NOISE * SIZE**0.5
    values = torch.linalg.eigvalsh(above_noise(noisy(np.zeros((SIZE, SIZE)), 0), NOISE))
    assert float(values.min()) >= edge * (1 - 1e-9)
    assert float(values.max()) < 1.3 * edge


def test_directions_above_the_noise_stay() -> None:
    signal = np.zeros((SIZE, SIZE))
    signal[5, 5] = 1e4
    scatter = above_noise(noisy(signal, 1), NOISE)
    assert abs(float(scatter[5, 5]) - 1e4) < 100
