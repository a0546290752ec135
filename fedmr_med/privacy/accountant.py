"""What releases with Gaussian noise have cost together, counted by opacus' accountant of Renyi differential privacy."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fedmr_med.errors import ConfigError

DELTA = 1e-5
"""The chance, at most, that a guarantee fails; well below one over the images of a site."""


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
    """Return epsilon of all releases together.

    Args:
        releases: each :class:`Noisy`; a number is the noise of one sum over all images.
        delta: of the guarantee.

    Raises:
        ConfigError: opacus is not installed.
    """
    counted: Counter[tuple[float, float]] = Counter()
    for release in releases:
        noise, rate, steps = release if isinstance(release, Noisy) else Noisy(release)
        counted[noise, rate] += steps
    if not counted:
        return 0.0
    try:
        from opacus.accountants import RDPAccountant
        from opacus.accountants.analysis import rdp
    except ImportError as e:
        raise ConfigError(
            "Privacy budgets need opacus: pip install 'fedmr-med[dp]'.", code="package.missing", key="opacus"
        ) from e
    orders = RDPAccountant.DEFAULT_ALPHAS
    spent = sum(
        rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
        for (noise, rate), steps in counted.items()
    )
    found, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return float(found)


def noise_for(epsilon: float, *, rate: float = 1.0, steps: int = 1, delta: float = DELTA) -> float:
    """Return the smallest noise, over sensitivity, with which some releases together cost at most ``epsilon``.

    Args:
        epsilon: what they may cost.
        rate: probability with which each image is in a release; 1 for prototypes and heads.
        steps: how many releases.
        delta: of the guarantee.

    Raises:
        ConfigError: opacus is not installed, or no noise is enough.
    """
    try:
        from opacus.accountants.utils import get_noise_multiplier
    except ImportError as e:
        raise ConfigError(
            "Privacy budgets need opacus: pip install 'fedmr-med[dp]'.", code="package.missing", key="opacus"
        ) from e
    try:
        found = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=rate,
            steps=steps,
            accountant="rdp",
            epsilon_tolerance=min(0.01, epsilon / 100),
        )
    except ValueError as e:
        raise ConfigError(
            f"No noise makes {steps} releases cost as little as epsilon {epsilon:g}.", code="budget.too-small"
        ) from e
    return float(found)
