"""What of a site's answers may leave under its policy.

The site already makes no more than the policy allows. This is the same rule once more, for whatever stands between
the work and the network: the site's engine, FLARE's filter and FLARE's guard.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import PolicyError, WireError
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure import Secure
from fedmr_med.secure.messages import Masked, Part
from fedmr_med.site.scores import permitted_scores
from fedmr_med.site.subgroups import permitted_subgroups
from fedmr_med.site.survey import permitted_survey
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.moments import COUNTS, MEANS, SUMS
from fedmr_med.statistics.shared import only_classes
from fedmr_med.wire.codec import (
    MODEL,
    Message,
    decode_reply,
    decode_statistics,
    decode_subgroups,
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
    names, levels = form.class_names, form.levels
    scores, of_levels = decode_validation(message, len(names)), decode_subgroups(message, len(names), len(levels))
    if form.sums:
        return encode_validation(None, shared)
    left = permitted_scores(scores, policy, names)
    return encode_validation(left, shared, permitted_subgroups(of_levels, left, policy, names, levels))


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
