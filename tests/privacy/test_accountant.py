"""What releases cost together: the exact figure of Gaussian releases, and a composition written for this test."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedmr_med.privacy.accountant import Noisy, epsilon, noise_for


def exact_epsilon(multiplier: float, delta: float) -> float:
    """Return epsilon of one Gaussian release (Balle and Wang, 2018)."""

    def excess(value: float) -> float:
        a, b = 1 / (2 * multiplier), value * multiplier
        return float(norm.cdf(a - b) - math.exp(value) * norm.cdf(-a - b) - delta)

    return float(brentq(excess, 0, 200))


def composed_epsilon(releases: list[Noisy], delta: float) -> float:
    """Return epsilon of steps on drawn images, by the distribution of the privacy loss on a grid, both ways."""
    step, size = 1e-3, 2**17
    found = []
    for removed in (False, True):
        whole = np.ones(size // 2 + 1, dtype=np.complex128)
        for noise, rate, steps in releases:
            x = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
            without = norm.pdf(x, scale=noise)
            drawn = (1 - rate) * without + rate * norm.pdf(x, loc=1, scale=noise)
            one, other = (without, drawn) if removed else (drawn, without)
            cells = np.rint(np.log(one / other) / step).astype(int) % size
            whole *= np.fft.rfft(np.bincount(cells, weights=one * (x[1] - x[0]), minlength=size)) ** steps
        mass = np.fft.irfft(whole, size)
        losses = step * np.fft.fftfreq(size, 1 / size)

        def excess(value: float, mass: np.ndarray = mass, losses: np.ndarray = losses) -> float:
            return float((mass * -np.expm1(np.minimum(value - losses, 0))).sum() - delta)

        found.append(float(brentq(excess, 0, 50)))
    return max(found)


@pytest.mark.parametrize(("noise", "times"), [(1.0, 9), (2.0, 9), (5.0, 9), (3.0, 1)])
def test_releases_of_all_images_cost_the_exact_figure(noise: float, times: int) -> None:
    assert epsilon([noise] * times, 1e-5) == pytest.approx(exact_epsilon(noise / math.sqrt(times), 1e-5), rel=1e-6)


def test_releases_with_different_noise_add_up() -> None:
    together = epsilon([2.0, 4.0, 2.0], 1e-5)
    assert together == pytest.approx(exact_epsilon((2 / 4 + 1 / 16) ** -0.5, 1e-5))
    assert max(epsilon([2.0, 2.0]), epsilon([4.0])) < together < epsilon([2.0] * 3)
    assert epsilon([]) == 0


@pytest.mark.parametrize(
    "releases",
    [
        [Noisy(1.1, 0.02, 300)],
        [Noisy(8.0, 0.4, 1)],
        [Noisy(1.1, 0.02, 300), Noisy(0.8, 0.1, 40), Noisy(1.1, 0.02, 200), Noisy(5.0), Noisy(5.0, steps=2)],
    ],
)
def test_steps_on_drawn_images_add_up_as_their_privacy_losses_do(releases: list[Noisy]) -> None:
    assert epsilon(releases, 1e-5) == pytest.approx(composed_epsilon(releases, 1e-5), rel=0.005)


def test_hidden_draws_cost_less_than_they_did_by_renyi_divergences() -> None:
    """8.88 by opacus' accountant, which was used before, for the same releases."""
    assert epsilon([Noisy(1.1, 0.02, 300), Noisy(0.8, 0.1, 40), 5.0, 5.0, 5.0]) < 0.9 * 8.88
    assert epsilon([Noisy(1.1, 0.02, 300)]) < epsilon([1.1]), "300 hidden draws of a fiftieth cost less than one of all"


@pytest.mark.parametrize(("budget", "rate", "steps"), [(0.5, 1, 1), (1, 1, 1), (4, 1, 3), (8, 1, 20), (3, 0.05, 200)])
def test_the_noise_for_a_budget_uses_it_up_and_no_more(budget: float, rate: float, steps: int) -> None:
    noise = noise_for(budget, rate=rate, steps=steps)
    assert 0.97 * budget < epsilon([Noisy(noise, rate, steps)]) <= budget
    assert noise == round(noise, 3), "what is printed keeps to the budget"


@pytest.mark.parametrize("release", [Noisy(0.02), Noisy(1e4), Noisy(0.1, 0.5, 20), Noisy(100.0, 0.1, 10)])
def test_extreme_noise_is_counted_in_little_time(release: Noisy) -> None:
    assert 0 < epsilon([release]) < 1e4
