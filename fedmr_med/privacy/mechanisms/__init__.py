"""The defences, one file each: what it does to what leaves, what it costs an attacker, and how it is said.

A new defence is a new file here, and a setting of :class:`fedmr_med.privacy.policy.SitePolicy` that makes one.
"""

from fedmr_med.privacy.mechanisms.base import Mechanism
from fedmr_med.privacy.mechanisms.clip import Clip
from fedmr_med.privacy.mechanisms.dominance import Dominance
from fedmr_med.privacy.mechanisms.gaussian import Gaussian
from fedmr_med.privacy.mechanisms.rounding import Rounding
from fedmr_med.privacy.mechanisms.suppression import Suppression

__all__ = ["Clip", "Dominance", "Gaussian", "Mechanism", "Rounding", "Suppression"]
