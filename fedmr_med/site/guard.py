"""What may leave a site, message by message: the one rule for every transport.

A message is read strictly and written anew from what was read, so nothing that is not named here can travel along: no
further key, array or class. Whatever cannot be read in full is refused.
"""

from fedmr_med.errors import PolicyError, WireError
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure.messages import Masked
from fedmr_med.site.release import permitted, permitted_scores, permitted_statistics
from fedmr_med.wire.codec import (
    MODEL,
    Message,
    decode_reply,
    decode_validation,
    encode_reply,
    encode_validation,
)
from fedmr_med.wire.form import ReplyForm
from fedmr_med.wire.kinds import HEAD, SECURE, SUBMIT_MODEL, TRAIN, VALIDATE
from fedmr_med.wire.secure import decode_answer, encode_answer
from fedmr_med.wire.statistics import HeadReply, decode_statistics, encode_statistics


def released(kind: str, message: Message, policy: SitePolicy, form: ReplyForm) -> Message:
    """Return a new message with what the policy allows of an answer, and nothing else.

    Raises:
        WireError: the answer does not have the agreed form.
        PolicyError: the policy does not allow an answer of this kind.
    """
    names, summed = form.class_names, form.secure != "none"
    if kind == TRAIN:
        reply = decode_reply(message, "", num_classes=len(names), feature_size=form.feature_size)
        form.check(reply)
        secure, noise = form.secure, form.training_noise
        left = permitted(reply, policy, names, secure=secure, private=form.private, training_noise=noise)
        return encode_reply(left, halved=form.halved)
    if kind == VALIDATE:
        scores = decode_validation(message, len(names))
        return encode_validation(None if summed else permitted_scores(scores, policy, names))
    if kind == HEAD:
        statistics = decode_statistics(message, "", num_classes=len(names), feature_size=form.statistics_size)
        if summed or (policy.privacy is not None and not form.private):
            return encode_statistics(HeadReply("", statistics.round))
        return encode_statistics(permitted_statistics(statistics, policy, names))
    if kind == SECURE and summed:
        # What a masked vector holds, nobody can see: whoever made it answers for that.
        answer = decode_answer(message, "")
        if isinstance(answer, Masked) and len(answer.vector) not in form.sum_sizes:
            raise WireError("the masked vector is of no sum of this job", code="wire.form", key="vector")
        return encode_answer(answer)
    if kind == SUBMIT_MODEL and policy.allow_submit_model and form.secure != "all":
        policy.check_training_noise(form.training_noise)
        if message.parts.keys() != {MODEL} or message.meta:
            raise WireError("the local model comes with something else", code="wire.unasked", key="model")
        form.check_model(message.parts[MODEL])
        return message
    raise PolicyError(f"the policy does not allow an answer to the task {kind!r}", code="policy.task-refused")
