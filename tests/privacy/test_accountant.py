"""What releases cost together: opacus' figures for the composed mechanism, and those of one release with less noise."""

import math

import pytest
from opacus.accountants import RDPAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from fedmr_med.privacy.accountant import Noisy, epsilon, noise_for


def exact_epsilon(multiplier: float, delta: float) -> float:
    """Return epsilon of one Gaussian release (Balle and Wang, 2018)."""

    def excess(value: float) -> float:
        a, b = 1 / (2 * multiplier), value * multiplier
        return float(norm.cdf(a - b) - math.exp(value) * norm.cdf(-a - b) - delta)

    return float(brentq(excess, 0, 200))


@pytest.mark.parametrize(("noise", "times"), [(1.0, 9), (2.0, 9), (5.0, 9), (3.0, 1)])
def test_the_figure_is_that_of_the_library_and_a_little_above_the_exact_one(noise: float, times: int) -> None:
    accountant = RDPAccountant()
    accountant.history = [(noise, 1.0, times)]
    found = epsilon([noise] * times, 1e-5)
    assert found == pytest.approx(accountant.get_epsilon(1e-5))
    exact = exact_epsilon(noise / math.sqrt(times), 1e-5)
    assert exact <= found <= 1.12 * exact


def test_releases_with_different_noise_add_up() -> None:
    together = epsilon([2.0, 4.0, 2.0], 1e-5)
    assert max(epsilon([2.0, 2.0]), epsilon([4.0])) < together < epsilon([2.0] * 3)
    assert epsilon([]) == 0


@pytest.mark.parametrize(("budget", "releases"), [(0.5, 1), (1, 1), (4, 3), (8, 20)])
def test_the_noise_for_a_budget_uses_it_up_and_no_more(budget: float, releases: int) -> None:
    noise = noise_for(budget, steps=releases)
    assert 0.98 * budget < epsilon([noise] * releases) <= budget


def test_training_steps_on_drawn_images_and_whole_releases_add_up_as_in_the_library() -> None:
    accountant = RDPAccountant()
    accountant.history = [(1.1, 0.02, 300), (1.1, 0.02, 200), (0.8, 0.1, 40), (5.0, 1.0, 3)]
    releases = [Noisy(1.1, 0.02, 300), Noisy(0.8, 0.1, 40), Noisy(1.1, 0.02, 200), 5.0, 5.0, 5.0]
    assert epsilon(releases) == pytest.approx(accountant.get_epsilon(1e-5))
    assert epsilon([Noisy(1.1, 0.02, 300)]) < epsilon([1.1]), "300 hidden draws of a fiftieth cost less than one of all"
