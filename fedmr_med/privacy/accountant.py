"""What releases with Gaussian noise may cost a site, and have cost together.

Releases of all images compose to one Gaussian mechanism, whose epsilon is exact (Balle and Wang, 2018). Releases of
drawn images are counted by their privacy loss distributions (Koskela et al., 2020), with Google's dp-accounting.
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import Field

from fedmr_med.errors import ConfigError
from fedmr_med.schema import Strict

DELTA = 1e-5
"""The chance, at most, that a guarantee fails; well below one over the images of a site."""

_STEP = 1e-3  # of privacy losses relative to those of one release; a tenth of it changes the fourth digit
_SEARCH = 1.01  # how far above the smallest noise a search may end


class PrivacyBudget(Strict):
    """What a site's prototypes, or its model updates, may tell about one image, or one patient where its table names
    them.

    Attributes:
        epsilon: of all releases together; what would go over it is not released.
        delta: of the guarantee.
        min_noise: smallest noise multiplier of a release, or of a training step, that the site takes part in.
    """

    epsilon: float = Field(gt=0, le=1000)
    delta: float = Field(DELTA, gt=0, lt=0.01)
    min_noise: float = Field(0.5, gt=0)


class Noisy(NamedTuple):
    """Sums of sensitivity 1 that are released with Gaussian noise.

    Attributes:
        noise: standard deviation over sensitivity.
        rate: probability with which each image is drawn into a sum, independently and unseen; 1 draws all.
        steps: how many such sums.
    """

    noise: float
    rate: float = 1.0
    steps: int = 1


def epsilon(releases: Iterable[float | Noisy], delta: float = DELTA) -> float:
    """Return epsilon of all releases together, for one image or patient more or less.

    A release that is a number is the noise of one sum over all images.

    Raises:
        ConfigError: dp-accounting is not installed.
    """
    counted: Counter[tuple[float, float]] = Counter()
    for release in releases:
        noise, rate, steps = release if isinstance(release, Noisy) else Noisy(release)
        counted[noise, rate] += steps
    return _composed(tuple(sorted(counted.items())), delta) if counted else 0.0


@lru_cache(maxsize=64)  # a ledger is asked more than once about the same lines
def _composed(counted: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    library = _library()
    precision = sum(steps / noise**2 for (noise, rate), steps in counted if rate == 1)
    drawn = [(noise, rate, steps) for (noise, rate), steps in counted if rate < 1]
    if not drawn:
        return float(library.get_epsilon_gaussian(1 / math.sqrt(precision), delta))
    from dp_accounting.pld import PLDAccountant

    least = min(noise for noise, _, _ in drawn)
    accountant = PLDAccountant(value_discretization_interval=_STEP / least * max(1.0, 1 / least))
    for noise, rate, steps in drawn:
        accountant.compose(library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(noise)), steps)
    if precision:
        accountant.compose(library.GaussianDpEvent(1 / math.sqrt(precision)))
    return float(accountant.get_epsilon(delta))


def noise_for(epsilon: float, *, rate: float = 1.0, steps: int = 1, delta: float = DELTA) -> float:
    """Return the smallest noise, over sensitivity, with which some releases together cost at most ``epsilon``.

    It is rounded up to three digits after the point.

    Args:
        rate: probability with which each image is in a release; 1 for prototypes and heads.
        steps: how many releases.

    Raises:
        ConfigError: dp-accounting is not installed.
    """
    most = float(_library().get_sigma_gaussian(epsilon, delta)) * math.sqrt(steps)
    if rate == 1:
        return _rounded_up(most)

    def costs(noise: float) -> float:
        return _composed((((noise, rate), steps),), delta)

    too_little = most
    while costs(too_little) <= epsilon:
        most, too_little = too_little, 0.7 * too_little
    while most > _SEARCH * too_little:
        middle = math.sqrt(most * too_little)
        most, too_little = (middle, too_little) if costs(middle) <= epsilon else (most, middle)
    return _rounded_up(most)


def _rounded_up(noise: float) -> float:
    """Return noise with few digits that people can copy, and that costs no more."""
    return math.ceil(1000 * noise) / 1000


def _library() -> Any:
    try:
        import dp_accounting
    except ImportError as e:
        raise ConfigError(
            "Privacy budgets need dp-accounting: pip install 'fedmr-med[dp]'.",
            code="package.missing",
            key="dp-accounting",
        ) from e
    return dp_accounting
