"""What of a site's answers may leave under its policy.

The site already makes no more than the policy allows. This is the same rule once more, for whatever stands between
the work and the network: the site's engine, FLARE's filter and FLARE's guard.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.errors import PolicyError, WireError
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.messages import Masked, Part
from fedmr_med.site.pairs import permitted_pairs
from fedmr_med.site.scores import permitted_scores
from fedmr_med.site.subgroups import permitted_subgroups
from fedmr_med.site.survey import permitted_survey
from fedmr_med.statistics.fields import Values, add
from fedmr_med.statistics.moments import COUNTS, MEANS, SUMS
from fedmr_med.statistics.shared import only_classes
from fedmr_med.wire.codec import MODEL, Message, decode_reply, encode_reply
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.kinds import EXCHANGES, SECURE, SUBMIT_MODEL, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply
from fedmr_med.wire.secure import ASK_PART, decode_answer, encode_answer


def leaving(kind: str, reply: SiteReply, policy: SitePolicy, form: ReplyForm) -> SiteReply:
    """Return what leaves of a reply to an exchange: what the policy permits, without what secure sums take."""
    return closed(permitted(kind, reply, policy, form), policy, form)


def permitted(kind: str, reply: SiteReply, policy: SitePolicy, form: ReplyForm) -> SiteReply:
    """Return the reply without what the policy does not allow, whether it leaves in the reply or in a secure sum.

    Raises:
        FloorError: the model was trained with less noise than the policy demands.
        PolicyError: see :func:`permitted_statistics`.
    """
    names, demands_noise = form.class_names, policy.privacy is not None and not form.private
    scores = permitted_scores(reply.scores, policy, names)
    allowed = replace(
        reply,
        scores=scores,
        subgroups=permitted_subgroups(reply.subgroups, scores, policy, names, form.levels),
        pairs=permitted_pairs(reply.pairs, scores, policy),
        prototypes=None if demands_noise else _permitted_sums(reply.prototypes, policy, names),
        statistics={} if demands_noise else permitted_statistics(reply.statistics, policy, names),
        shared=permitted_shared(kind, reply.shared, policy, form),
        survey=permitted_survey(reply.survey, policy, names, form.levels),
    )
    if kind != TRAIN:
        return allowed
    policy.check_training_noise(form.training_noise)
    return replace(allowed, samples=policy.rounded_up(max(1, reply.samples)))


def closed(reply: SiteReply, policy: SitePolicy, form: ReplyForm) -> SiteReply:
    """Return a reply that the policy permits without what leaves in secure sums only."""
    if form.secure != "none":
        reply = replace(
            reply, prototypes=None, scores=None, subgroups=(), pairs=None, statistics={}, shared={}, survey=None
        )
    if form.secure == "all":
        report = None if reply.report is None else reply.report.costs()
        return replace(reply, samples=0, model={}, payload={}, report=report)
    used = reply.samples + _scored(reply.scores)
    return replace(reply, report=_permitted_report(reply.report, policy, used))


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
        if bool(((part[COUNTS] > 0) & ~policy.shareable_classes(part[COUNTS], class_names)).any()):
            raise PolicyError(
                "the statistics hold a class that the policy does not share, or too few images of one.",
                code="policy.too-few-images",
            )
    if policy.share_scatter or not values:
        return dict(values)
    # The part that was set aside serves to choose a shrinkage, of which there is none without scatter.
    return {MEANS.name: add(*({name: part[name] for name in (COUNTS, SUMS)} for part in values.values()))}


def _permitted_sums(sums: ClassSums | None, policy: SitePolicy, class_names: tuple[str, ...]) -> ClassSums | None:
    if sums is None:
        return None
    left = sums.only(torch.from_numpy(policy.shareable_classes(sums.counts.numpy(), class_names)))
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
    return {part: only_classes(content, form.layouts[kind][part], classes) for part, content in values.items()}


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
    if kind in EXCHANGES:
        reply = decode_reply(kind, message, "", form.layouts[kind])
        if kind == TRAIN:
            form.check(reply)
        return encode_reply(kind, leaving(kind, reply, policy, form), halved=form.halved)
    if kind == SECURE and form.secure != "none":
        # What a masked vector holds, nobody can see: whoever made it answers for that.
        answer = decode_answer(message, "")
        if isinstance(answer, Masked | Part) and len(answer.vector) not in form.vector_sizes:
            raise WireError("the masked vector is of no sum of this job", code="wire.form", key="vector")
        return encode_answer(answer)
    if kind == SUBMIT_MODEL and policy.allow_submit_model and form.secure != "all":
        policy.check_training_noise(form.training_noise)
        if message.parts.keys() != {MODEL} or message.meta:
            raise WireError("the local model comes with something else", code="wire.unasked", key="model")
        form.check_model(message.parts[MODEL])
        return message
    raise PolicyError(f"the policy does not allow an answer to the task {kind!r}", code="policy.task-refused")


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
