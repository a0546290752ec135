"""The one wire format: named parts of numpy arrays, and plain values beside them.

    task:   {model, prototypes (means, available, age), method, averaged, backbone}
    reply:  {model, prototypes (classes, sums, counts), method, histograms}
    scores: {histograms}

``averaged`` is absent from the task of a method that scores the model it trains on, and ``prototypes`` from the
reply of a site that shares none. Only the rows of shared classes are sent, so a class that is held back leaves neither
sum nor count. ``histograms`` belong to the scores. Decoding checks the form of everything it touches and raises
:class:`WireError`; whether the values make sense is checked by the aggregation. ``backbone`` is in a task where a part
of the network is frozen, until every site has answered with it; its digest is always there.

With ``federation.wire: float16`` the model's parameters travel as :mod:`fedmr_med.wire.half` packs them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.errors import ConfigError, WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.results import SiteReport
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.schema import NAME_PATTERN, brief, validated
from fedmr_med.wire.agreement import agreed_settings, agreement
from fedmr_med.wire.backbone import Backbone
from fedmr_med.wire.half import pack, unpack
from fedmr_med.wire.histograms import decode_histograms, encode_histograms
from fedmr_med.wire.messages import SiteReply, TrainTask

MODEL, PROTOTYPES, METHOD, AVERAGED = "model", "prototypes", "method", "averaged"
BACKBONE, HISTOGRAMS = "backbone", "histograms"
ROUND, ROUNDS, CHAIN, ACCEPTED = "round", "rounds", "chain", "accepted"
SAMPLES, SCORES, REPORT, BYTES_DOWN = "samples", "scores", "report", "bytes_down"
EXPONENTS = "exponents"
_SCORE_KEYS = {"accuracy", "balanced_accuracy", "samples", "confusion", "withheld"}
_MOST = 10**12


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
    prototypes = {
        "means": task.prototypes.means.numpy(),
        "available": task.prototypes.available.numpy(),
        "age": task.prototypes.age.numpy(),
    }
    meta = {
        **agreement(task.settings),
        ROUND: task.round,
        ROUNDS: task.rounds,
        CHAIN: task.chain,
        ACCEPTED: dict(task.accepted),
        EXPONENTS: exponents,
    }
    parts = {MODEL: model, PROTOTYPES: prototypes, METHOD: task.method}
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


def encode_reply(reply: SiteReply, *, halved: Collection[str] = ()) -> Message:
    """Encode a site's reply, the parameters in ``halved`` as float16; what it does not share has no key in it."""
    model, exponents = pack(reply.model, halved if reply.model else ())  # none where a secure sum takes it
    parts = {MODEL: model, METHOD: reply.payload}
    if reply.prototypes is not None:
        classes = reply.prototypes.counts.nonzero().flatten()
        parts[PROTOTYPES] = {
            "classes": classes.numpy(),
            "sums": reply.prototypes.sums[classes].float().numpy(),
            "counts": reply.prototypes.counts[classes].numpy(),
        }
    if reply.scores is not None and reply.scores.histograms is not None:
        parts[HISTOGRAMS] = encode_histograms(reply.scores.histograms)
    meta = {
        **agreement(reply.settings),
        ROUND: reply.round,
        SAMPLES: reply.samples,
        SCORES: encode_scores(reply.scores),
        REPORT: None if reply.report is None else reply.report.model_dump(exclude_none=True, exclude_unset=True),
        BYTES_DOWN: reply.bytes_down,
        EXPONENTS: exponents,
    }
    return Message(parts, meta)


def decode_reply(message: Message, site: str, *, num_classes: int, feature_size: int) -> SiteReply:
    """Decode a site's reply.

    Raises:
        WireError: it does not have the agreed form.
    """
    settings = agreed_settings(message.meta)
    unexpected = message.parts.keys() - {MODEL, PROTOTYPES, METHOD, HISTOGRAMS}
    if unexpected:
        raise WireError(
            f"the reply has an unexpected part {min(unexpected)!r}", code="wire.unasked", key=min(unexpected)
        )
    prototypes = None
    if PROTOTYPES in message.parts:
        prototypes = _class_sums(message.parts[PROTOTYPES], num_classes, feature_size)
    return SiteReply(
        site=site,
        round=whole_number(message.meta, ROUND),
        samples=whole_number(message.meta, SAMPLES, most=MAX_IMAGES),
        settings=settings,
        model=_unpacked(message),
        prototypes=prototypes,
        payload=_part(message, METHOD),
        scores=decode_scores(message.meta.get(SCORES), num_classes, message.parts.get(HISTOGRAMS)),
        report=_report(message.meta.get(REPORT)),
        bytes_up=message.size,
        bytes_down=whole_number(message.meta, BYTES_DOWN),
    )


def encode_validation(scores: Scores | None) -> Message:
    """Encode a site's scores of a model; None where it shares none, or a secure sum takes them."""
    histograms = None if scores is None else scores.histograms
    parts = {} if histograms is None else {HISTOGRAMS: encode_histograms(histograms)}
    return Message(parts, {SCORES: encode_scores(scores)})


def decode_validation(message: Message, num_classes: int) -> Scores | None:
    """Decode a site's scores of a model.

    Raises:
        WireError: they do not have the agreed form.
    """
    if unexpected := message.parts.keys() - {HISTOGRAMS}:
        raise WireError(f"the scores have an unexpected part {min(unexpected)!r}", code="wire.unasked", key="scores")
    return decode_scores(message.meta.get(SCORES), num_classes, message.parts.get(HISTOGRAMS))


def encode_scores(scores: Scores | None) -> dict[str, Any] | None:
    """Encode scores as plain values, their histograms aside."""
    if scores is None:
        return None
    confusion = None if scores.confusion is None else scores.confusion.tolist()
    return {
        "accuracy": scores.accuracy,
        "balanced_accuracy": scores.balanced_accuracy,
        "samples": scores.samples,
        "confusion": confusion,
        "withheld": list(scores.withheld),
    }


def decode_scores(content: Any, num_classes: int, histograms: Arrays | None = None) -> Scores | None:
    """Decode scores, and the histograms that came with them.

    Raises:
        WireError: they are neither absent nor well formed, or do not fit each other.
    """
    if content is None:
        if histograms is not None:
            raise WireError("histograms without scores", code="wire.form", key="histograms")
        return None
    if not isinstance(content, dict) or content.keys() != _SCORE_KEYS:
        raise WireError("the scores do not have the agreed keys", code="wire.form", key="scores")
    shares = content["accuracy"], content["balanced_accuracy"]
    if not all(type(share) is float and 0 <= share <= 1 for share in shares):
        raise WireError("the scores are out of range", code="wire.range", key="scores")
    samples = whole_number(content, SAMPLES, most=MAX_IMAGES)
    matrix = None if content["confusion"] is None else _confusion(content["confusion"], num_classes)
    if matrix is not None and matrix.sum() != samples:
        raise WireError(
            f"the confusion matrix counts {matrix.sum()} images, the scores {samples}",
            code="wire.counts",
            key="confusion",
        )
    withheld = _withheld(content["withheld"], matrix)
    if histograms is not None and matrix is None:
        raise WireError("histograms without a confusion matrix", code="wire.form", key="histograms")
    found = None if histograms is None or matrix is None else decode_histograms(histograms, matrix)
    return Scores(*shares, samples, matrix, withheld, found)


def _withheld(classes: Any, confusion: IntArray | None) -> tuple[int, ...]:
    """Return the classes whose rows are held back: only zeros may stand there."""
    if not isinstance(classes, list) or not all(type(label) is int for label in classes):
        raise WireError("the classes held back are not a list of labels", code="wire.form", key="withheld")
    known = range(0 if confusion is None else len(confusion))
    if classes != sorted(set(classes)) or not set(classes) <= set(known):
        raise WireError("the classes held back are not in order, or do not exist", code="wire.range", key="withheld")
    if confusion is not None and confusion[classes].any():
        raise WireError(
            "the confusion matrix has counts of a class that is held back", code="wire.counts", key="withheld"
        )
    return tuple(classes)


def _confusion(rows: Any, num_classes: int) -> IntArray:
    """Return the counts of a confusion matrix given as lists."""
    lists = isinstance(rows, list) and all(isinstance(row, list) and len(row) == num_classes for row in rows)
    if not lists or len(rows) != num_classes:
        raise WireError(
            f"the confusion matrix is not {num_classes} x {num_classes} counts", code="wire.form", key="confusion"
        )
    if not all(type(count) is int and 0 <= count <= MAX_IMAGES for row in rows for count in row):
        raise WireError(
            f"the confusion matrix has an entry that is no count up to {MAX_IMAGES}", code="wire.range", key="confusion"
        )
    return np.array(rows, dtype=np.int64)


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


def _class_sums(rows: Arrays, num_classes: int, feature_size: int) -> ClassSums:
    """Spread the shared rows over all classes."""
    if rows.keys() != {"classes", "sums", "counts"}:
        raise WireError(f"the prototypes have the keys {sorted(rows)}", code="wire.form", key="prototypes")
    classes, sums, counts = rows["classes"], rows["sums"], rows["counts"]
    if classes.dtype.kind != "i" or counts.dtype.kind != "i" or sums.dtype != np.float32:
        raise WireError("the prototypes' arrays do not have the agreed types", code="wire.form", key="prototypes")
    if classes.ndim != 1 or counts.shape != classes.shape or sums.shape != (len(classes), feature_size):
        raise WireError(
            f"the prototypes have shape {sums.shape} for {classes.shape} classes and {counts.shape} counts",
            code="wire.form",
            key="prototypes",
        )
    if (classes < 0).any() or (classes >= num_classes).any() or len(np.unique(classes)) != len(classes):
        raise WireError(
            "the prototypes name a class twice or one that does not exist", code="wire.range", key="prototypes"
        )
    if (counts < 1).any():
        raise WireError("the prototypes have a count below one", code="wire.counts", key="prototypes")
    spread = ClassSums.zeros(num_classes, feature_size)
    spread.sums[torch.from_numpy(classes)] = torch.from_numpy(sums).double()
    spread.counts[torch.from_numpy(classes)] = torch.from_numpy(counts).long()
    return spread


def _prototypes(arrays: Arrays) -> Prototypes:
    try:
        return Prototypes(_tensor(arrays, "means"), _tensor(arrays, "available"), _tensor(arrays, "age"))
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


def _tensor(arrays: Arrays, name: str) -> torch.Tensor:
    if name not in arrays:
        raise WireError(f"the prototypes lack {name!r}", code="wire.form", key=f"prototypes.{name}")
    return torch.from_numpy(arrays[name])


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
