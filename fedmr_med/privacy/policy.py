"""The site policy: which prototypes and metrics a hospital lets out.

Defaults share nothing. The executor asks the policy before it computes anything that could leave.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.schema import Strict


class Sharing(Strict):
    """What may be shared beyond the model update and the number of training images: as a job asks for it at most.

    Attributes:
        share_prototypes: True, False, or the names of the classes whose prototypes may leave.
        min_class_count: a class with fewer local training images leaves neither sum nor count, and one with fewer test
            images takes no part in any score. 11 is the rule of CMS: no cell of 1 to 10.
        share_metrics: ``none``; ``scalar``: accuracy, balanced accuracy and the number of test images;
            ``per_class``: the confusion matrix of the classes that are shared; a site that opted out of all sends the
            scalars.
        allow_submit_model: whether the site answers ``submit_model``, which hands its local model out.
        approve: which jobs start by themselves (``fedmr-med site jobs`` lists all of them): ``always``: every job that
            keeps to this policy; ``new_settings``: only with settings that a person here has approved before;
            ``each``: only once a person here has approved this very chain.
        approval_minutes: how long a job waits for the person before it is refused; 0 refuses it at once.
    """

    share_prototypes: bool | tuple[str, ...] = False
    min_class_count: int = Field(11, ge=1)
    share_metrics: Literal["none", "scalar", "per_class"] = "none"
    allow_submit_model: bool = False
    approve: Literal["always", "new_settings", "each"] = "always"
    approval_minutes: int = Field(0, ge=0, le=7 * 24 * 60)


class SitePolicy(Sharing):
    """What a hospital shares, and what it demands of a job; nothing is shared by default.

    Attributes:
        training: what a job must keep to, or the site does not train for it; None demands nothing.
    """

    training: TrainingFloors | None = TrainingFloors()

    def shareable_classes(self, counts: npt.NDArray[np.int64], class_names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a mask (C,) of the classes whose prototype may leave, given the local counts (C,)."""
        mask: npt.NDArray[np.bool_] = self.chosen_classes(class_names) & (counts >= self.min_class_count)
        return mask

    def chosen_classes(self, class_names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a mask (C,) of the classes that are not opted out, however few images there are."""
        if isinstance(self.share_prototypes, bool):
            return np.full(len(class_names), self.share_prototypes)
        return np.array([name in self.share_prototypes for name in class_names])

    def restricted_by(self, other: Sharing) -> "SitePolicy":
        """Return the stricter of the two, setting by setting; what is not about sharing stays this policy's choice."""
        levels, approvals = ("none", "scalar", "per_class"), ("always", "new_settings", "each")
        return SitePolicy(
            share_prototypes=_fewer_classes(self.share_prototypes, other.share_prototypes),
            min_class_count=max(self.min_class_count, other.min_class_count),
            share_metrics=min(self.share_metrics, other.share_metrics, key=levels.index),
            allow_submit_model=self.allow_submit_model and other.allow_submit_model,
            approve=max(self.approve, other.approve, key=approvals.index),
            approval_minutes=self.approval_minutes,
            training=self.training,
        )


def _fewer_classes(a: bool | tuple[str, ...], b: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return tuple(name for name in a if name in b)
