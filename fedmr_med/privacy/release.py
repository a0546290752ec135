"""What of a site's reply may leave under its policy. Knows nothing of FLARE.

The executor already makes no more than the policy allows. This is the same rule once more, for whatever stands
between the executor and the network.
"""

from dataclasses import replace

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmr_med.errors import WireError
from fedmr_med.metrics import Scores
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.wire.messages import SiteReply


class _Report(BaseModel):
    """The plain figures a site that shares metrics may add to its reply; too few to hide anything else in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seconds: float = 0.0
    terms: dict[str, float] = Field(default={}, max_length=8)
    images_total: int = 0
    images_skipped: int = 0


def permitted(reply: SiteReply, policy: SitePolicy, class_names: tuple[str, ...]) -> SiteReply:
    """Return the reply without what the policy does not allow.

    Raises:
        WireError: the report holds something that is not one of its plain figures.
    """
    return replace(
        reply,
        prototypes=_permitted_sums(reply.prototypes, policy, class_names),
        scores=permitted_scores(reply.scores, policy),
        report=_permitted_report(reply.report, policy),
    )


def permitted_scores(scores: Scores | None, policy: SitePolicy) -> Scores | None:
    """Return the scores without what the policy does not allow."""
    if scores is None or policy.share_metrics == "none":
        return None
    return scores if policy.share_metrics == "per_class" else replace(scores, confusion=None)


def _permitted_sums(sums: ClassSums | None, policy: SitePolicy, class_names: tuple[str, ...]) -> ClassSums | None:
    if sums is None:
        return None
    counts = sums.counts.numpy()
    shared = policy.shareable_classes(counts, class_names) & (counts > 0)
    return sums.only(torch.from_numpy(np.asarray(shared))) if shared.any() else None


def _permitted_report(report: dict[str, object], policy: SitePolicy) -> dict[str, object]:
    if not report or policy.share_metrics == "none":
        return {}
    try:
        _Report.model_validate(report)
    except ValidationError as e:
        raise WireError(f"the report holds {e.errors()[0]['loc']}, which is not one of its figures") from e
    return report
