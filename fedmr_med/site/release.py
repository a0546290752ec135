"""What of a site's reply may leave under its policy. Knows nothing of FLARE.

The executor already makes no more than the policy allows. This is the same rule once more, for whatever stands
between the executor and the network.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import IntArray, ScoreHistograms
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.evaluation.metrics import scores as score
from fedmr_med.evaluation.results import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure import Secure
from fedmr_med.statistics.head import HeadStatistics
from fedmr_med.wire.messages import SiteReply
from fedmr_med.wire.statistics import HeadReply

_DIGITS = 3


def permitted(
    reply: SiteReply,
    policy: SitePolicy,
    class_names: tuple[str, ...],
    *,
    secure: Secure = "none",
    private: bool = False,
    training_noise: float = 0.0,
) -> SiteReply:
    """Return the reply without what the policy does not allow.

    Args:
        reply: what the site would send.
        policy: the site's policy.
        class_names: the classes of the task.
        secure: what leaves in secure sums only, and so is no part of a reply.
        private: whether the job has noise on class sums, which a site with a privacy budget demands.
        training_noise: noise on the gradients of local training, 0 without, which a site with a budget for training
            demands.

    Raises:
        FloorError: the model was trained with less noise than the policy demands.
    """
    policy.check_training_noise(training_noise)
    summed = secure != "none"
    closed = summed or (policy.privacy is not None and not private)
    samples = policy.rounding.up(max(1, reply.samples))
    scores = None if summed else permitted_scores(reply.scores, policy, class_names)
    if secure == "all":
        report = None if reply.report is None else reply.report.costs()
        return replace(reply, samples=0, model={}, payload={}, prototypes=None, scores=None, report=report)
    return replace(
        reply,
        samples=samples,
        prototypes=None if closed else _permitted_sums(reply.prototypes, policy, class_names),
        scores=scores,
        report=_permitted_report(reply.report, policy, samples + (scores.samples if scores else 0)),
    )


def _permitted_report(report: SiteReport | None, policy: SitePolicy, used: int) -> SiteReport | None:
    """Return the report with the images that its reply tells of anyway: another total would tell of the others."""
    if report is None or policy.share_metrics == "none":
        return None
    if policy.training_privacy is not None:
        report = report.model_copy(update={"terms": {}})  # losses have no noise
    if policy.round_samples == 1 or report.images_total is None:
        return report
    return report.model_copy(update={"images_total": used + (report.images_skipped or 0)})


def permitted_scores(scores: Scores | None, policy: SitePolicy, class_names: tuple[str, ...]) -> Scores | None:
    """Return the scores without what the policy does not allow.

    Classes that are held back count nowhere: what leaves is a function of the rows that leave, or for the scalars of
    the classes with enough test images. So no total, share or mean tells of the others.
    """
    if scores is None or policy.share_metrics == "none":
        return None
    if scores.confusion is None:
        return _scalars(scores)
    counts, chosen = scores.confusion.sum(1), policy.chosen_classes(class_names)
    opted_out = not chosen.any()
    leaves = (counts >= policy.min_class_count) & (chosen | opted_out | (policy.share_metrics == "scalar"))
    if not leaves.any():
        return None
    confusion = np.where(leaves[:, None], scores.confusion, 0)
    if opted_out or policy.share_metrics == "scalar":
        return _scalars(score(confusion))
    # With a minimum of 1 a row of zeros hides nothing.
    held = ~leaves if policy.min_class_count > 1 else ~chosen
    withheld = sorted({*np.flatnonzero(held).tolist(), *scores.withheld})
    histograms = _permitted_histograms(scores.histograms, confusion, policy.min_class_count)
    return replace(score(confusion, tuple(withheld)), histograms=histograms)


def released_scores(
    logits: npt.NDArray[np.floating], labels: IntArray, policy: SitePolicy, class_names: tuple[str, ...]
) -> Scores | None:
    """Return what may leave of a model's logits (n, C) on images with ``labels`` (n,).

    Histograms are of the classes alone whose rows of the confusion matrix leave, and no cell of them holds fewer images
    than ``policy.min_class_count``: single scores are joined with their neighbours.
    """
    matrix = confusion_matrix(labels, logits.argmax(1), len(class_names))
    result = permitted_scores(score(matrix), policy, class_names)
    if result is None or result.confusion is None:
        return result
    leaves = result.confusion.sum(1)[labels] > 0
    return replace(
        result, histograms=ScoreHistograms.of(logits[leaves], labels[leaves]).coarsened(policy.min_class_count)
    )


def _permitted_histograms(
    histograms: ScoreHistograms | None, confusion: IntArray, least: int
) -> ScoreHistograms | None:
    """Return histograms that count just the images of a confusion matrix, in cells that are large enough; else None.

    They cannot be taken apart by class, so nothing of them leaves if they hold a class that may not.
    """
    if histograms is None or not np.array_equal(histograms.positives.sum(1), confusion.sum(1)):
        return None
    return histograms.coarsened(least)


def _scalars(scores: Scores) -> Scores:
    """Return the scores without their matrix; in full, their digits give away the counts they are ratios of."""
    accuracy, balanced = round(scores.accuracy, _DIGITS), round(scores.balanced_accuracy, _DIGITS)
    return Scores(accuracy, balanced, scores.samples)


def permitted_statistics(reply: HeadReply, policy: SitePolicy, class_names: tuple[str, ...]) -> HeadReply:
    """Return the statistics of a head exchange, without the scatter where the policy does not share it.

    Raises:
        PolicyError: they hold a class that may not leave, or too few samples of one. A scatter matrix cannot be taken
            apart by class, so nothing of them leaves then.
    """
    for part in (reply.kept, reply.held_out):
        if part is not None:
            policy.suppression(class_names).check(part.sums)
    if policy.share_scatter:
        return reply
    # The part that was set aside serves to choose a shrinkage, of which there is none without scatter.
    parts = [part for part in (reply.kept, reply.held_out) if part is not None]
    sums = [HeadStatistics.from_sums(part.sums) for part in parts]
    return replace(reply, kept=sum(sums[1:], start=sums[0]) if sums else None, held_out=None)


def _permitted_sums(sums: ClassSums | None, policy: SitePolicy, class_names: tuple[str, ...]) -> ClassSums | None:
    if sums is None:
        return None
    left = policy.suppression(class_names).sums(sums)
    return left if bool((left.counts > 0).any()) else None
