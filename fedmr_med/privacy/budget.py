"""A site's privacy budgets: how much its releases may cost together, over all chains."""

from pydantic import Field

from fedmr_med.privacy.accountant import DELTA
from fedmr_med.schema import Strict


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
