"""What releases with Gaussian noise have cost together, counted by opacus' accountant of Renyi differential privacy."""

from collections import Counter
from collections.abc import Iterable

from fedmr_med.errors import ConfigError

DELTA = 1e-5
"""The chance, at most, that a guarantee fails; well below one over the images of a site."""


def epsilon(multipliers: Iterable[float], delta: float = DELTA) -> float:
    """Return epsilon of all releases together, each of sensitivity 1 with noise of the given multiplier.

    Args:
        multipliers: noise over sensitivity of each release; no subsampling is counted on.
        delta: of the guarantee.

    Raises:
        ConfigError: opacus is not installed.
    """
    releases = Counter(multipliers)
    if not releases:
        return 0.0
    try:
        from opacus.accountants import RDPAccountant
        from opacus.accountants.analysis import rdp
    except ImportError as e:
        raise ConfigError("Privacy budgets need opacus: pip install 'fedmr-med[dp]'.") from e
    orders = RDPAccountant.DEFAULT_ALPHAS
    spent = sum(rdp.compute_rdp(q=1.0, noise_multiplier=s, steps=n, orders=orders) for s, n in releases.items())
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
        raise ConfigError("Privacy budgets need opacus: pip install 'fedmr-med[dp]'.") from e
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
        raise ConfigError(f"No noise makes {steps} releases cost as little as epsilon {epsilon:g}.") from e
    return float(found)
