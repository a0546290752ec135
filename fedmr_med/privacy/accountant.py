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
