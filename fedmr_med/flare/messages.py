"""The wire format in FLARE's containers.

A task or reply is a COLLECTION DXO: the model a WEIGHTS member, everything else APP_DEFINED, so that FLARE's own
weight filters leave prototypes alone. An answer to ``validate`` is a METRICS DXO, one to ``submit_model`` a WEIGHTS
DXO, as FLARE's cross-site evaluation takes it.
"""

from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import scores
from fedmr_med.statistics.scores import CONFUSION
from fedmr_med.wire import codec
from fedmr_med.wire.codec import MODEL, Message
from fedmr_med.wire.kinds import SUBMIT_MODEL, VALIDATE

PARTS = "parts"
"""Key of the arrays in a METRICS DXO."""

_DERIVED = ("accuracy", "mean_recall", "samples")


def to_shareable(message: Message, kind: str = "") -> Shareable:
    """Put an answer or a task into its container; ``kind`` is that of an answer."""
    if kind == SUBMIT_MODEL:
        return DXO(DataKind.WEIGHTS, data=message.parts[MODEL]).to_shareable()
    if kind == VALIDATE:
        return DXO(DataKind.METRICS, data=_metrics(message)).to_shareable()
    members = {name: DXO(_kind(name), data=arrays) for name, arrays in message.parts.items()}
    return DXO(DataKind.COLLECTION, data=members, meta=message.meta).to_shareable()


def to_message(shareable: Shareable, kind: str = "") -> Message:
    """Take an answer or a task out of its container; ``kind`` is that of an answer.

    Raises:
        WireError: it is something else, or holds something else than named numeric arrays.
    """
    if kind == SUBMIT_MODEL:
        return Message({MODEL: _arrays(MODEL, _dxo(shareable, DataKind.WEIGHTS), DataKind.WEIGHTS)})
    if kind == VALIDATE:
        meta = dict(_dxo(shareable, DataKind.METRICS).data)
        content = meta.pop(PARTS, {})
        if not isinstance(content, dict):
            raise WireError("the arrays of the scores are not in parts", code="wire.form", key=PARTS)
        if codec.SCORES in content and isinstance(meta.get(codec.SCORES), dict):
            meta[codec.SCORES] = {name: value for name, value in meta[codec.SCORES].items() if name not in _DERIVED}
        return Message({name: _named_arrays(name, arrays) for name, arrays in content.items()}, meta)
    dxo = _dxo(shareable, DataKind.COLLECTION)
    parts = {name: _arrays(name, member, _kind(name)) for name, member in dxo.data.items()}
    return Message(parts, dict(dxo.meta or {}))


def _metrics(message: Message) -> dict[str, Any]:
    """Return scores as FLARE writes them into its own files: with what follows from their matrix."""
    if not message.parts:
        return message.meta
    data = {**message.meta, PARTS: message.parts}
    if codec.SCORES in message.parts:
        derived = scores(message.parts[codec.SCORES][CONFUSION])
        data[codec.SCORES] = message.meta[codec.SCORES] | {name: getattr(derived, name) for name in _DERIVED}
    return data


def _kind(part: str) -> DataKind:
    return DataKind.WEIGHTS if part == MODEL else DataKind.APP_DEFINED


def _dxo(shareable: Shareable, kind: DataKind) -> DXO:
    try:
        dxo = from_shareable(shareable)
    except (ValueError, AttributeError) as e:
        raise WireError(f"not a DXO ({e})", code="wire.form") from e
    if dxo.data_kind != kind or not isinstance(dxo.data, dict):
        raise WireError(f"a {dxo.data_kind} where a {kind} was expected", code="wire.form")
    return dxo


def _arrays(name: str, member: object, kind: DataKind) -> Arrays:
    if not isinstance(member, DXO) or member.data_kind != kind or not isinstance(member.data, dict):
        raise WireError(f"no {name!r} part of kind {kind}", code="wire.form", key=name)
    return _named_arrays(name, member.data)


def _named_arrays(name: str, content: object) -> Arrays:
    if not isinstance(content, dict):
        raise WireError(f"{name!r} is not a mapping of arrays", code="wire.form", key=name)
    for key, array in content.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise WireError(f"{key!r} in {name!r} is not a numeric array", code="wire.form", key=name)
    return dict(content)
