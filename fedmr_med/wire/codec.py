"""The one wire format: named parts of numpy arrays, and plain values beside them.

    task:     {model, prototypes (means, available, age), method, averaged, backbone}
    train:    {model, method, prototypes, scores}
    validate: {scores, subgroups, pairs}
    head:     {kept, held_out, means}
    survey:   {survey}

``averaged`` is absent from the task of a method that scores the model it trains on. Below it are the replies to each
exchange. All of their parts but ``model`` and ``method`` are statistics (:mod:`fedmr_med.statistics`), those of other
packages too: each has exactly the fields of one, and is absent where a site shares none of it. A class that is held
back is zero in them. Decoding checks the form of everything it touches and
raises :class:`WireError`; whether the values make sense is checked by the aggregation. ``backbone`` is in a task where
a part of the network is frozen, until every site has answered with it; its digest is always there.

With ``federation.wire: float16`` the model's parameters travel as :mod:`fedmr_med.wire.half` packs them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fedmr_med.arrays import Arrays
from fedmr_med.errors import ConfigError, WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.prototypes import PARTS, Prototypes
from fedmr_med.schema import NAME_PATTERN, brief, validated
from fedmr_med.statistics.base import Sizes, Statistic
from fedmr_med.statistics.fields import Layout
from fedmr_med.statistics.moments import HELD_OUT, KEPT
from fedmr_med.statistics.moments import PROTOTYPES as CLASS_SUMS
from fedmr_med.statistics.pairs import PAIRS, check_pairs
from fedmr_med.statistics.scores import CONFUSION, VALIDATION
from fedmr_med.statistics.scores import SCORES as SCORE_STATISTIC
from fedmr_med.statistics.shared import PREFIX
from fedmr_med.statistics.subgroups import SUBGROUPS, check_levels
from fedmr_med.statistics.survey import SURVEY_STATISTIC
from fedmr_med.wire.agreement import agreed_settings, agreement
from fedmr_med.wire.half import pack, unpack
from fedmr_med.wire.kinds import HEAD, SURVEY, TRAIN, VALIDATE
from fedmr_med.wire.messages import Backbone, SiteReply, TrainTask

MODEL, PROTOTYPES, METHOD, AVERAGED = "model", "prototypes", "method", "averaged"
BACKBONE = "backbone"
ROUND, ROUNDS, CHAIN, ACCEPTED = "round", "rounds", "chain", "accepted"
SAMPLES, SCORES, REPORT, BYTES_DOWN = "samples", "scores", "report", "bytes_down"
EXPONENTS = "exponents"
WITHHELD = "withheld"
_SCALARS = {"accuracy", "mean_recall", SAMPLES}
_MOST = 10**12
T = TypeVar("T")


@dataclass(frozen=True)
class Message:
    """What goes on the wire, whatever carries it.

    Attributes:
        parts: arrays by name, by part.
        meta: plain values by name.
    """

    parts: dict[str, Arrays]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for arrays in self.parts.values() for array in arrays.values())


def encode_task(task: TrainTask, *, halved: Collection[str] = ()) -> Message:
    """Encode what every site receives; the parameters in ``halved`` as float16."""
    model, exponents = pack(task.model, halved)
    meta = {
        **agreement(task.settings),
        ROUND: task.round,
        ROUNDS: task.rounds,
        CHAIN: task.chain,
        ACCEPTED: dict(task.accepted),
        EXPONENTS: exponents,
    }
    parts = {MODEL: model, PROTOTYPES: task.prototypes.arrays(), METHOD: task.method}
    if task.averaged:
        parts[AVERAGED] = task.averaged
    if task.backbone is not None:
        meta[BACKBONE] = task.backbone.digest
        if task.backbone.arrays:
            parts[BACKBONE] = task.backbone.arrays
    return Message(parts, meta)


def decode_task(message: Message) -> TrainTask:
    """Decode a task.

    Raises:
        WireError: it does not have the agreed form.
    """
    settings = agreed_settings(message.meta)
    return TrainTask(
        model=_unpacked(message),
        prototypes=_prototypes(_part(message, PROTOTYPES)),
        method=_part(message, METHOD),
        round=whole_number(message.meta, ROUND),
        rounds=whole_number(message.meta, ROUNDS),
        chain=chain_of(message.meta),
        settings=settings,
        averaged=message.parts.get(AVERAGED, {}),
        accepted=_accepted(message.meta.get(ACCEPTED)),
        backbone=_backbone(message),
        bytes=message.size,
    )


def encode_reply(kind: str, reply: SiteReply, *, halved: Collection[str] = ()) -> Message:
    """Encode a site's reply to an exchange, the parameters in ``halved`` as float16.

    What the site does not share has no key in it.
    """
    parts = _score_parts(reply.scores) | {
        name: dict(part) for name, part in {**reply.statistics, **reply.shared}.items()
    }
    known = [part.confusion for part in reply.subgroups if part is not None and part.confusion is not None]
    if known:
        sizes = Sizes(len(known[0]), 0, 0, levels=len(reply.subgroups))
        parts[SUBGROUPS.name] = _encoded(SUBGROUPS, reply.subgroups, sizes)
    if reply.pairs is not None:
        parts[PAIRS.name] = _encoded(PAIRS, reply.pairs, Sizes(len(reply.pairs.cells), 0, 0, pairs=True))
    if reply.survey is not None:
        sizes = Sizes(len(reply.survey.train), 0, 0, levels=len(reply.survey.levels))
        parts[SURVEY] = _encoded(SURVEY_STATISTIC, reply.survey, sizes)
    if kind == SURVEY:
        return Message(parts)
    if kind == HEAD:
        return Message(parts, {ROUND: reply.round})
    if kind == VALIDATE:
        return Message(parts, {SCORES: encode_scores(reply.scores)})
    model, exponents = pack(reply.model, halved if reply.model else ())  # none where a secure sum takes it
    trained = {MODEL: model, METHOD: reply.payload}
    if reply.prototypes is not None:
        classes, size = reply.prototypes.sums.shape
        trained[PROTOTYPES] = _encoded(CLASS_SUMS, reply.prototypes, Sizes(classes, size, size))
    meta = {
        **agreement(reply.settings),
        ROUND: reply.round,
        SAMPLES: reply.samples,
        SCORES: encode_scores(reply.scores),
        REPORT: None if reply.report is None else reply.report.model_dump(exclude_none=True, exclude_unset=True),
        BYTES_DOWN: reply.bytes_down,
        EXPONENTS: exponents,
    }
    return Message(trained | parts, meta)


def decode_reply(kind: str, message: Message, site: str, layouts: Mapping[str, Layout]) -> SiteReply:
    """Decode a site's reply. Whether samples add up to statistics of a head is seen when they are read.

    Args:
        layouts: fields of the statistics of the exchange, by part.

    Raises:
        WireError: it does not have the agreed form.
    """
    meta = message.meta
    settings = agreed_settings(meta) if kind == TRAIN else ""
    known = layouts.keys() | ({MODEL, METHOD} if kind == TRAIN else set())
    if unexpected := (message.parts.keys() | (meta.keys() if kind == SURVEY else set())) - known:
        name = min(unexpected)
        raise WireError(f"the reply has an unexpected part {name!r}", code="wire.unasked", key=name)
    additive = {
        name: layouts[name].checked(part, name)
        for name, part in message.parts.items()
        if name not in (MODEL, METHOD, PROTOTYPES, SCORES, SUBGROUPS.name, PAIRS.name, SURVEY)
    }
    if HELD_OUT.name in additive and KEPT.name not in additive:
        raise WireError("held-out statistics without the others", code="wire.form", key="held-out")
    shared = {name: part for name, part in additive.items() if name.startswith(PREFIX)}
    reply = SiteReply(
        site,
        round=whole_number(meta, ROUND) if kind in (TRAIN, HEAD) else 0,
        scores=decode_scores(message, layouts[SCORES].fields[CONFUSION].shape[0]) if SCORES in layouts else None,
        subgroups=_decoded(SUBGROUPS, message, layouts) or (),
        pairs=_decoded(PAIRS, message, layouts),
        survey=_decoded(SURVEY_STATISTIC, message, layouts),
        statistics={name: part for name, part in additive.items() if name not in shared},
        shared=shared,
        bytes_up=message.size,
    )
    check_levels(reply.subgroups, reply.scores)
    check_pairs(reply.pairs, reply.scores)
    if kind != TRAIN:
        return reply
    return replace(
        reply,
        samples=whole_number(meta, SAMPLES, most=MAX_IMAGES),
        settings=settings,
        model=_unpacked(message),
        prototypes=_decoded(CLASS_SUMS, message, layouts),
        payload=_part(message, METHOD),
        report=_report(meta.get(REPORT)),
        bytes_down=whole_number(meta, BYTES_DOWN),
    )


def _encoded(statistic: Statistic[T], content: T, sizes: Sizes) -> Arrays:
    return statistic.layout(sizes).sent(statistic.values(content))


def _decoded(statistic: Statistic[T], message: Message, layouts: Mapping[str, Layout]) -> T | None:
    part = message.parts.get(statistic.name)
    return None if part is None else statistic.read(layouts[statistic.name].checked(part, statistic.name))


def encode_scores(scores: Scores | None) -> dict[str, Any] | None:
    """Encode what of scores does not add up: the classes that are held back, or the scalars where they are alone."""
    if scores is None:
        return None
    if scores.confusion is not None:
        return {WITHHELD: list(scores.withheld)}
    return {name: getattr(scores, name) for name in sorted(_SCALARS)}


def decode_scores(message: Message, num_classes: int) -> Scores | None:
    """Decode the scores of a message.

    Raises:
        WireError: they are neither absent nor well formed, or do not fit each other.
    """
    content, part = message.meta.get(SCORES), message.parts.get(SCORES)
    keys = content.keys() if isinstance(content, dict) else None
    if content is not None and keys != ({WITHHELD} if part is not None else _SCALARS):
        raise WireError("the scores do not have the agreed keys", code="wire.form", key="scores")
    if part is None:
        return None if content is None else _scalars(content)
    if content is None:
        raise WireError("a confusion matrix without the classes that are held back", code="wire.form", key="scores")
    sizes = Sizes(num_classes, 0, 0, validation=any(name.startswith(VALIDATION) for name in part))
    decoded = SCORE_STATISTIC.read(SCORE_STATISTIC.layout(sizes).checked(part, SCORES))
    return None if decoded is None else replace(decoded, withheld=_withheld(content[WITHHELD], decoded))


def _score_parts(scores: Scores | None) -> dict[str, Arrays]:
    if scores is None or scores.confusion is None:
        return {}
    sizes = Sizes(len(scores.confusion), 0, 0, validation=scores.validation is not None)
    return {SCORES: _encoded(SCORE_STATISTIC, scores, sizes)}


def _scalars(content: Mapping[str, Any]) -> Scores:
    shares = content["accuracy"], content["mean_recall"]
    if not all(type(share) is float and 0 <= share <= 1 for share in shares):
        raise WireError("the scores are out of range", code="wire.range", key="scores")
    return Scores(*shares, whole_number(content, SAMPLES, most=MAX_IMAGES))


def _withheld(classes: Any, scores: Scores) -> tuple[int, ...]:
    """Return the classes whose rows are held back: only zeros may stand there."""
    if not isinstance(classes, list) or not all(type(label) is int for label in classes):
        raise WireError("the classes held back are not a list of labels", code="wire.form", key="withheld")
    known = range(0 if scores.confusion is None else len(scores.confusion))
    if classes != sorted(set(classes)) or not set(classes) <= set(known):
        raise WireError("the classes held back are not in order, or do not exist", code="wire.range", key="withheld")
    if scores.confusion is not None and scores.confusion[classes].any():
        raise WireError(
            "the confusion matrix has counts of a class that is held back", code="wire.counts", key="withheld"
        )
    return tuple(classes)


def _report(content: Any) -> SiteReport | None:
    """Read a site's report; its keys, names, types and sizes are those of the results schema."""
    if content is None:
        return None
    if not isinstance(content, dict):
        raise WireError("the report is not a mapping", code="wire.form", key="report")
    try:
        return validated(SiteReport, content, "the report")
    except ConfigError as e:
        raise WireError(str(e), code="wire.form", key="report") from e


def _part(message: Message, name: str) -> Arrays:
    if name not in message.parts:
        raise WireError(f"no {name!r} part", code="wire.form", key=name)
    return message.parts[name]


def _unpacked(message: Message) -> Arrays:
    """Return the model with all its parameters as float32."""
    exponents = message.meta.get(EXPONENTS, {})
    if not isinstance(exponents, dict):
        raise WireError(f"{EXPONENTS!r} of the model are not a mapping", code="wire.form", key=EXPONENTS)
    try:
        return unpack(_part(message, MODEL), exponents)
    except ValueError as e:
        raise WireError(f"the model cannot be unpacked: {e}", code="wire.form", key="model") from e


def _prototypes(arrays: Arrays) -> Prototypes:
    for name in PARTS:
        if name not in arrays:
            raise WireError(f"the prototypes lack {name!r}", code="wire.form", key=f"prototypes.{name}")
    try:
        return Prototypes.from_arrays(arrays)
    except ValueError as e:
        raise WireError(f"the prototypes: {e}", code="wire.form", key="prototypes") from e


def _backbone(message: Message) -> Backbone | None:
    digest = message.meta.get(BACKBONE)
    if digest is None and BACKBONE not in message.parts:
        return None
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{32}", digest):
        raise WireError("the frozen part of the network is not named by a digest", code="wire.form", key="backbone")
    return Backbone(digest, message.parts.get(BACKBONE, {}))


def _accepted(content: Any) -> dict[str, int]:
    if not isinstance(content, dict) or not all(type(number) is int for number in content.values()):
        raise WireError(
            f"{ACCEPTED!r} does not say the last accepted round of each site", code="wire.form", key=ACCEPTED
        )
    return dict(content)


def whole_number(meta: Mapping[str, Any] | None, name: str, *, most: int = _MOST) -> int:
    """Return a whole number from 0 to ``most``; a bool or a text is none."""
    value = (meta or {}).get(name)
    if type(value) is not int:
        raise WireError(f"{name!r} is a {type(value).__name__}, not a whole number", code="wire.form", key=name)
    if not 0 <= value <= most:
        raise WireError(f"{name!r} is not between 0 and {most}", code="wire.range", key=name)
    return value


def chain_of(meta: Mapping[str, Any] | None, key: str = CHAIN) -> str:
    """Return the chain's id, or another name; a site makes a file or folder of it, so it must not be a path."""
    value = (meta or {}).get(key)
    if not isinstance(value, str) or len(value) > 100 or not re.fullmatch(NAME_PATTERN, value):
        raise WireError(f"{key!r} is {brief(value)!r}, not an id", code="wire.form", key=key)
    return value
