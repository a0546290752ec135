"""What of a site's reply may leave under its policy. Knows nothing of FLARE.

The executor already makes no more than the policy allows. This is the same rule once more, for whatever stands
between the executor and the network.
"""

from dataclasses import replace

import numpy as np
import torch

from fedmr_med.errors import PolicyError
from fedmr_med.metrics import Scores
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.wire.messages import SiteReply
from fedmr_med.wire.statistics import HeadReply


def permitted(reply: SiteReply, policy: SitePolicy, class_names: tuple[str, ...]) -> SiteReply:
    """Return the reply without what the policy does not allow."""
    return replace(
        reply,
        prototypes=_permitted_sums(reply.prototypes, policy, class_names),
        scores=permitted_scores(reply.scores, policy),
        report=None if policy.share_metrics == "none" else reply.report,
    )


def permitted_scores(scores: Scores | None, policy: SitePolicy) -> Scores | None:
    """Return the scores without what the policy does not allow."""
    if scores is None or policy.share_metrics == "none":
        return None
    return scores if policy.share_metrics == "per_class" else replace(scores, confusion=None)


def permitted_statistics(reply: HeadReply, policy: SitePolicy, class_names: tuple[str, ...]) -> HeadReply:
    """Return the statistics of a head exchange.

    Raises:
        PolicyError: they hold a class that may not leave, or too few samples of one. A scatter matrix cannot be taken
            apart by class, so nothing of them leaves then.
    """
    for part in (reply.kept, reply.held_out):
        if part is None:
            continue
        counts = part.sums.counts.numpy()
        if bool(((counts > 0) & ~policy.shareable_classes(counts, class_names)).any()):
            raise PolicyError("the statistics hold a class that the policy does not share, or too few images of one.")
    return reply


def _permitted_sums(sums: ClassSums | None, policy: SitePolicy, class_names: tuple[str, ...]) -> ClassSums | None:
    if sums is None:
        return None
    counts = sums.counts.numpy()
    shared = policy.shareable_classes(counts, class_names) & (counts > 0)
    return sums.only(torch.from_numpy(np.asarray(shared))) if shared.any() else None
