"""What of a site's answers may leave under its policy.

The site already makes no more than the policy allows. This is the same rule once more, for whatever stands between
the work and the network: the site's engine, FLARE's filter and FLARE's guard.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import PolicyError, WireError
from fedmr_med.evaluation.clinical import IntArray, ScoreHistograms
from fedmr_med.evaluation.clustering import Clustering
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.evaluation.metrics import scores as score
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure import Secure
from fedmr_med.secure.messages import Masked, Part
from fedmr_med.site.survey import permitted_survey
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.moments import COUNTS, MEANS, SUMS
from fedmr_med.statistics.shared import only_classes
from fedmr_med.wire.codec import (
    MODEL,
    Message,
    decode_reply,
    decode_statistics,
    decode_survey,
    decode_validation,
    encode_reply,
    encode_statistics,
    encode_survey,
    encode_validation,
    split_shared,
)
from fedmr_med.wire.kinds import HEAD, SECURE, SUBMIT_MODEL, SURVEY, TRAIN, VALIDATE
from fedmr_med.wire.messages import ReplyForm, SiteReply, StatisticsReply
from fedmr_med.wire.secure import ASK_PART, decode_answer, encode_answer

Shared = dict[str, Values]

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
        report=_permitted_report(reply.report, policy, samples + _scored(scores)),
    )


def _scored(scores: Scores | None) -> int:
    """Return how many images scores tell of."""
    return 0 if scores is None else scores.samples + _scored(scores.validation)


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
    confusion = without_small_cells(np.where(leaves[:, None], scores.confusion, 0), policy.min_cell_count)
    exact = tells_all(confusion, scores.confusion)
    if not confusion.any():
        return None
    if opted_out or policy.share_metrics == "scalar":
        # Over one class a model that always answers with it scores 1.
        return _scalars(score(confusion)) if confusion.any(1).sum() > 1 else None
    # With a minimum of 1 a row of zeros hides nothing.
    held = ~confusion.any(1) if max(policy.min_class_count, policy.min_cell_count) > 1 else ~chosen
    withheld = sorted({*np.flatnonzero(held).tolist(), *scores.withheld})
    histograms = _permitted_histograms(scores.histograms, confusion, policy.min_class_count) if exact else None
    unchanged = np.array_equal(confusion, scores.confusion)
    clustering = scores.clustering.rounded() if scores.clustering is not None and unchanged else None
    validation = permitted_scores(scores.validation, policy, class_names)
    return replace(
        score(confusion, tuple(withheld)), histograms=histograms, clustering=clustering, validation=validation
    )


def without_small_cells(confusion: IntArray, least: int) -> IntArray:
    """Return a confusion matrix (C, C) whose cells are zero or count ``least`` images and more.

    The recall of a class that stays is exact: errors that are too rare are joined with its most frequent one. A class
    whose right or wrong answers are too few to leave has a row of zeros.
    """
    right = np.diag(confusion)
    errors = confusion - np.diag(right)
    few = [(total > 0) & (total < least) for total in (right, errors.sum(1))]
    errors[few[0] | few[1]] = 0
    rare = errors * (errors < least)
    joined = errors - rare
    joined[np.arange(len(errors)), errors.argmax(1)] += rare.sum(1)
    result: IntArray = joined + np.diag(np.where(few[0] | few[1], 0, right))
    return result


def tells_all(left: IntArray, confusion: IntArray) -> bool:
    """Whether the rows of a matrix (C, C) that leave are those of the exact one: no rare errors were joined.

    Where some were, histograms and patients' residuals stay: of a network with sure answers they tell single cells.
    """
    rows = left.any(1)
    return np.array_equal(left[rows], confusion[rows])


def released_scores(
    logits: npt.NDArray[np.floating],
    labels: IntArray,
    policy: SitePolicy,
    class_names: tuple[str, ...],
    units: IntArray | None = None,
) -> Scores | None:
    """Return what may leave of a model's logits (n, C) on images with ``labels`` (n,).

    Histograms are of the classes alone whose rows of the confusion matrix leave, if none of these has a small cell, and
    tell of groups of at least ``policy.min_class_count`` images: single scores are spread with their neighbours. How
    far the images of a patient (``units``, (n,); None where nobody knows) go together leaves if each of these classes
    has as many patients.
    """
    matrix = confusion_matrix(labels, logits.argmax(1), len(class_names))
    result = permitted_scores(score(matrix), policy, class_names)
    if result is None or result.confusion is None or not tells_all(result.confusion, matrix):
        return result
    leaves = result.confusion.sum(1)[labels] > 0
    histograms = ScoreHistograms.of(logits[leaves], labels[leaves]).spread(policy.min_class_count)
    clustering = None if units is None else _clustering(logits[leaves], labels[leaves], units[leaves], policy)
    return replace(result, histograms=histograms, clustering=clustering)


def _clustering(
    logits: npt.NDArray[np.floating], labels: IntArray, units: IntArray, policy: SitePolicy
) -> Clustering | None:
    """Return how far the images of a patient go together; None where a class is of too few patients."""
    patients = np.bincount(np.unique(np.stack([labels, units]), axis=1)[0])
    if patients[patients > 0].min() < policy.min_class_count:
        return None
    return Clustering.of(logits, labels, units).rounded()


def _permitted_histograms(
    histograms: ScoreHistograms | None, confusion: IntArray, least: int
) -> ScoreHistograms | None:
    """Return histograms that count just the images of a confusion matrix, in groups that are large enough; else None.

    They cannot be taken apart by class, so nothing of them leaves if they hold a class that may not.
    """
    if histograms is None or not np.array_equal(histograms.positives.sum(1), confusion.sum(1)):
        return None
    return histograms.spread(least)


def _scalars(scores: Scores) -> Scores:
    """Return the scores without their matrix; in full, their digits give away the counts they are ratios of."""
    return Scores(round(scores.accuracy, _DIGITS), round(scores.mean_recall, _DIGITS), scores.samples)


def permitted_statistics(
    values: Mapping[str, Values], policy: SitePolicy, class_names: tuple[str, ...]
) -> dict[str, Values]:
    """Return the statistics of a head exchange, without the scatter where the policy does not share it.

    Raises:
        PolicyError: they hold a class that may not leave, or too few samples of one. Second moments cannot be taken
            apart by class, so nothing of them leaves then.
    """
    for part in values.values():
        policy.suppression(class_names).check(part[COUNTS])
    if policy.share_scatter or not values:
        return dict(values)
    # The part that was set aside serves to choose a shrinkage, of which there is none without scatter.
    return {MEANS.name: add(*({name: part[name] for name in (COUNTS, SUMS)} for part in values.values()))}


def _permitted_sums(sums: ClassSums | None, policy: SitePolicy, class_names: tuple[str, ...]) -> ClassSums | None:
    if sums is None:
        return None
    left = policy.suppression(class_names).sums(sums)
    return left if bool((left.counts > 0).any()) else None


def shared_classes(
    kind: str, counts: IntArray, policy: SitePolicy, class_names: tuple[str, ...], *, private: bool
) -> npt.NDArray[np.bool_]:
    """Return the mask (C,) of the classes whose samples statistics of other packages may be made of.

    They have no noise. So nothing of training images leaves in a job with noise, or at a site that demands it.

    Args:
        kind: of the exchange: training images, or for ``validate`` test images.
        counts: (C,) numbers of these images.
        private: whether the job has noise on class sums.
    """
    without_noise = not private and policy.privacy is None
    allowed = policy.share_metrics == "per_class" if kind == VALIDATE else without_noise
    return policy.shareable_classes(counts, class_names) & allowed


def permitted_shared(kind: str, values: Mapping[str, Values], policy: SitePolicy, form: ReplyForm) -> dict[str, Values]:
    """Return what of statistics of other packages may leave, as far as their fields tell the classes apart."""
    most = np.full(len(form.class_names), np.iinfo(np.int64).max)
    classes = shared_classes(kind, most, policy, form.class_names, private=form.private)
    if not classes.any():
        return {}
    return {part: only_classes(content, form.shared[kind][part], classes) for part, content in values.items()}


def released(kind: str, message: Message, policy: SitePolicy, form: ReplyForm, *, left: bool | None = None) -> Message:
    """Return a new message with what the policy allows of an answer: the one rule for every transport.

    The answer is read strictly and written anew from what was read, so nothing that is not named here can travel along:
    no further key, array or class. Whatever cannot be read in full is refused.

    Args:
        left: whether a person has said that the site leaves the chain. Then its part of a secure total is all that
            still leaves, and it leaves only then. None where there is nobody to say so, as in a simulation.

    Raises:
        WireError: the answer does not have the agreed form.
        PolicyError: the policy does not allow an answer of this kind.
    """
    check_left(left, part=message.parts.keys() == {ASK_PART})
    message, values = split_shared(message, form.shared.get(kind, {}))
    shared = {} if form.sums else permitted_shared(kind, values, policy, form)
    allowed = _RULES[kind](message, shared, policy, form) if kind in _RULES else None
    if allowed is None:
        raise PolicyError(f"the policy does not allow an answer to the task {kind!r}", code="policy.task-refused")
    return allowed


def check_left(left: bool | None, *, part: bool) -> None:
    """Return if a site may give an answer, given whether it has left the chain; see :func:`released`.

    Args:
        part: whether the answer is the site's part of a secure total.

    Raises:
        PolicyError: it may not.
    """
    if left is None or left == part:
        return
    if part:
        raise PolicyError(
            "the site's part of a secure total leaves only when it leaves the chain: `fedmr-med site withdraw CHAIN`.",
            code="policy.not-left",
        )
    raise PolicyError("this site has left the chain, and answers nothing of it any more.", code="policy.left")


def _trained(message: Message, shared: Shared, policy: SitePolicy, form: ReplyForm) -> Message:
    names, secure = form.class_names, form.secure
    reply = decode_reply(message, "", num_classes=len(names), feature_size=form.feature_size)
    form.check(reply)
    noise = form.training_noise
    left = permitted(reply, policy, names, secure=secure, private=form.private, training_noise=noise)
    return encode_reply(replace(left, shared=shared), halved=form.halved)


def _validated(message: Message, shared: Shared, policy: SitePolicy, form: ReplyForm) -> Message:
    scores = decode_validation(message, len(form.class_names))
    return encode_validation(None if form.sums else permitted_scores(scores, policy, form.class_names), shared)


def _head(message: Message, shared: Shared, policy: SitePolicy, form: ReplyForm) -> Message:
    names = form.class_names
    statistics = decode_statistics(message, "", num_classes=len(names), feature_size=form.statistics_size)
    if form.sums or (policy.privacy is not None and not form.private):
        return encode_statistics(StatisticsReply("", statistics.round))
    return encode_statistics(
        replace(statistics, values=permitted_statistics(statistics.values, policy, names) | shared)
    )


def _surveyed(message: Message, shared: Shared, policy: SitePolicy, form: ReplyForm) -> Message:
    survey = decode_survey(message, len(form.class_names), len(form.levels))
    return encode_survey(None if form.sums else permitted_survey(survey, policy, form.class_names, form.levels))


def _secure(message: Message, shared: Shared, policy: SitePolicy, form: ReplyForm) -> Message | None:
    """Pass a step of a secure sum on. What a masked vector holds, nobody can see: whoever made it answers for that."""
    if not form.sums:
        return None
    answer = decode_answer(message, "")
    if isinstance(answer, Masked | Part) and len(answer.vector) not in form.sum_sizes:
        raise WireError("the masked vector is of no sum of this job", code="wire.form", key="vector")
    return encode_answer(answer)


def _own_model(message: Message, shared: Shared, policy: SitePolicy, form: ReplyForm) -> Message | None:
    if not policy.allow_submit_model or form.secure == "all":
        return None
    policy.check_training_noise(form.training_noise)
    if message.parts.keys() != {MODEL} or message.meta:
        raise WireError("the local model comes with something else", code="wire.unasked", key="model")
    form.check_model(message.parts[MODEL])
    return message


_RULES: Mapping[str, Callable[[Message, Shared, SitePolicy, ReplyForm], Message | None]] = {
    TRAIN: _trained,
    VALIDATE: _validated,
    HEAD: _head,
    SURVEY: _surveyed,
    SECURE: _secure,
    SUBMIT_MODEL: _own_model,
}
"""What may leave of each kind of answer; None refuses it."""
