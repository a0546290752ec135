"""What of a site's answers may leave under its policy.

The site already makes no more than the policy allows. This is the same rule once more, for whatever stands between
the work and the network: the site's engine, FLARE's filter and FLARE's guard.
"""

from dataclasses import replace
from typing import Any

from fedmr_med.errors import PolicyError, WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure.messages import Masked, Part
from fedmr_med.statistics.base import Leaving
from fedmr_med.statistics.catalog import statistic_of
from fedmr_med.wire.codec import MODEL, Message, decode_reply, encode_reply
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.kinds import EXCHANGES, SECURE, SUBMIT_MODEL, TRAIN
from fedmr_med.wire.messages import SiteReply
from fedmr_med.wire.secure import ASK_PART, decode_answer, encode_answer


def leaving(kind: str, reply: SiteReply, policy: SitePolicy, form: ReplyForm) -> SiteReply:
    """Return what leaves of a reply to an exchange: what the policy permits, without what secure sums take."""
    return closed(permitted(kind, reply, policy, form), policy, form)


def permitted(kind: str, reply: SiteReply, policy: SitePolicy, form: ReplyForm) -> SiteReply:
    """Return the reply without what the policy does not allow, whether it leaves in the reply or in a secure sum.

    What is no statistic of the exchange is not looked at, and so does not leave.

    Raises:
        FloorError: the model was trained with less noise than the policy demands.
        PolicyError: a statistic holds what may not leave, and cannot be taken apart.
    """
    left: dict[str, Any] = {}
    layouts, found = form.layouts[kind], reply.statistics
    for part in layouts:
        known = Leaving(policy, form.class_names, form.levels, form.private, layouts, found, left)
        content = statistic_of(part).permitted(found.get(part), known)
        if content is not None:
            left[part] = content
    if kind != TRAIN:
        return replace(reply, statistics=left)
    policy.check_training_noise(form.training_noise)
    return replace(reply, statistics=left, samples=policy.rounded_up(max(1, reply.samples)))


def closed(reply: SiteReply, policy: SitePolicy, form: ReplyForm) -> SiteReply:
    """Return a reply that the policy permits without what leaves in secure sums only."""
    if form.secure != "none":
        reply = replace(reply, statistics={})
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
