"""The one wire format: named parts of numpy arrays, and plain values beside them.

    task:  {model, prototypes (means, available, age), method, averaged, backbone}
    train: {model, method, and its statistics}
    all other replies: their statistics

``averaged`` is absent from the task of a method that scores the model it trains on. Which statistics an exchange has
is in :mod:`fedmr_med.statistics.catalog`, beside those of other packages: a part has exactly the fields of one, and is
absent where a site shares none of it. A class that is held back is zero in them. Decoding checks the form of
everything it touches and raises :class:`WireError`; whether the values make sense is checked by the aggregation.
``backbone`` is in a task where a part of the network is frozen, until every site has answered with it; its digest is
always there.

With ``federation.wire: float16`` the model's parameters travel as :mod:`fedmr_med.wire.half` packs them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedmr_med.arrays import Arrays
from fedmr_med.errors import ConfigError, WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.prototypes import PARTS, Prototypes
from fedmr_med.schema import NAME_PATTERN, brief, validated
from fedmr_med.statistics.catalog import STATISTICS, statistic_of
from fedmr_med.statistics.fields import Layout, whole_number
from fedmr_med.wire.agreement import agreed_settings, agreement
from fedmr_med.wire.half import pack, unpack
from fedmr_med.wire.kinds import HEAD, SURVEY, TRAIN
from fedmr_med.wire.messages import Backbone, SiteReply, TrainTask

MODEL, PROTOTYPES, METHOD, AVERAGED, BACKBONE = "model", "prototypes", "method", "averaged", "backbone"
ROUND, ROUNDS, CHAIN, ACCEPTED = "round", "rounds", "chain", "accepted"
SAMPLES, SCORES, REPORT, BYTES_DOWN, EXPONENTS = "samples", "scores", "report", "bytes_down", "exponents"


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

    What the site does not share has no part in it.
    """
    sent = {part: statistic_of(part).sent(content) for part, content in reply.statistics.items()}
    parts = {part: arrays for part, arrays in sent.items() if arrays}
    told = {one.part: one.told(reply.statistics.get(one.part)) for one in STATISTICS[kind] if one.tells}
    if kind == HEAD:
        return Message(parts, {ROUND: reply.round} | told)
    if kind != TRAIN:
        return Message(parts, told)
    model, exponents = pack(reply.model, halved if reply.model else ())  # none where a secure sum takes it
    meta = {
        **agreement(reply.settings),
        ROUND: reply.round,
        SAMPLES: reply.samples,
        **told,
        REPORT: None if reply.report is None else reply.report.model_dump(exclude_none=True, exclude_unset=True),
        BYTES_DOWN: reply.bytes_down,
        EXPONENTS: exponents,
    }
    return Message({MODEL: model, METHOD: reply.payload} | parts, meta)


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
    statistics = {part: statistic_of(part) for part in layouts}
    found = {
        part: statistic.received(message.parts.get(part), layouts[part], meta.get(part) if statistic.tells else None)
        for part, statistic in statistics.items()
    }
    found = {part: content for part, content in found.items() if content is not None}
    for part, content in found.items():
        statistics[part].check(content, found)
    reply = SiteReply(
        site, round=whole_number(meta, ROUND) if kind in (TRAIN, HEAD) else 0, statistics=found, bytes_up=message.size
    )
    if kind != TRAIN:
        return reply
    return replace(
        reply,
        samples=whole_number(meta, SAMPLES, most=MAX_IMAGES),
        settings=settings,
        model=_unpacked(message),
        payload=_part(message, METHOD),
        report=_report(meta.get(REPORT)),
        bytes_down=whole_number(meta, BYTES_DOWN),
    )


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


def chain_of(meta: Mapping[str, Any] | None, key: str = CHAIN) -> str:
    """Return the chain's id, or another name; a site makes a file or folder of it, so it must not be a path."""
    value = (meta or {}).get(key)
    if not isinstance(value, str) or len(value) > 100 or not re.fullmatch(NAME_PATTERN, value):
        raise WireError(f"{key!r} is {brief(value)!r}, not an id", code="wire.form", key=key)
    return value
