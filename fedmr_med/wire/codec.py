"""The one wire format: COLLECTION DXOs of numpy arrays.

    task:   {model: WEIGHTS, prototypes: APP_DEFINED (means, available, age), method: APP_DEFINED}
    reply:  {model: WEIGHTS, prototypes: APP_DEFINED (classes, sums, counts), method: APP_DEFINED}
    scores: METRICS

``prototypes`` is absent from the reply of a site that shares none. Only the rows of shared classes are sent, so
a class that is held back leaves neither sum nor count. Decoding checks the form of everything it touches and
raises :class:`WireError`; whether the values make sense is checked by the aggregation.

With ``federation.wire: float16`` the model's parameters travel as :mod:`fedmr_med.wire.half` packs them.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable

from fedmr_med.arrays import Arrays
from fedmr_med.config import CHAIN_PATTERN
from fedmr_med.errors import WireError
from fedmr_med.metrics import Scores
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.half import pack, unpack
from fedmr_med.wire.messages import SiteReply, TrainTask

MODEL, PROTOTYPES, METHOD = "model", "prototypes", "method"
ROUND, ROUNDS, CHAIN, ACCEPTED = "round", "rounds", "chain", "accepted"
SAMPLES, SCORES, REPORT, BYTES_DOWN = "samples", "scores", "report", "bytes_down"
EXPONENTS = "exponents"


def encode_task(
    state: GlobalState, method_view: Arrays, *, rounds: int, chain: str, halved: Collection[str] = ()
) -> Shareable:
    """Encode what every site receives; the parameters in ``halved`` as float16."""
    prototypes = {
        "means": state.prototypes.means.numpy(),
        "available": state.prototypes.available.numpy(),
        "age": state.prototypes.age.numpy(),
    }
    members = {
        MODEL: _model_dxo(state.model, halved),
        PROTOTYPES: DXO(DataKind.APP_DEFINED, data=prototypes),
        METHOD: DXO(DataKind.APP_DEFINED, data=method_view),
    }
    meta = {ROUND: state.round, ROUNDS: rounds, CHAIN: chain, ACCEPTED: dict(state.accepted)}
    return DXO(DataKind.COLLECTION, data=members, meta=meta).to_shareable()


def decode_task(shareable: Shareable) -> TrainTask:
    """Decode a task.

    Raises:
        WireError: it does not have the agreed form.
    """
    dxo = _collection(shareable)
    members = {name: _member(dxo, name, kind) for name, kind in _KINDS.items()}
    prototypes = members[PROTOTYPES]
    size = sum(_size(arrays) for arrays in members.values())
    return TrainTask(
        model=_unpacked(dxo, members[MODEL]),
        prototypes=Prototypes(
            _tensor(prototypes, "means"), _tensor(prototypes, "available"), _tensor(prototypes, "age")
        ),
        method=members[METHOD],
        round=_number(dxo.meta, ROUND),
        rounds=_number(dxo.meta, ROUNDS),
        chain=_chain(dxo.meta),
        accepted=dict(dxo.meta.get(ACCEPTED) or {}),
        bytes=size,
    )


def encode_reply(reply: SiteReply, *, halved: Collection[str] = ()) -> Shareable:
    """Encode a site's reply, the parameters in ``halved`` as float16; what it does not share has no key in it."""
    members = {
        MODEL: _model_dxo(reply.model, halved),
        METHOD: DXO(DataKind.APP_DEFINED, data=reply.payload),
    }
    if reply.prototypes is not None:
        classes = reply.prototypes.counts.nonzero().flatten()
        rows = {
            "classes": classes.numpy(),
            "sums": reply.prototypes.sums[classes].float().numpy(),
            "counts": reply.prototypes.counts[classes].numpy(),
        }
        members[PROTOTYPES] = DXO(DataKind.APP_DEFINED, data=rows)
    meta = {
        ROUND: reply.round,
        SAMPLES: reply.samples,
        SCORES: encode_scores(reply.scores),
        REPORT: reply.report,
        BYTES_DOWN: reply.bytes_down,
    }
    return DXO(DataKind.COLLECTION, data=members, meta=meta).to_shareable()


def decode_reply(shareable: Shareable, site: str, *, num_classes: int, feature_size: int) -> SiteReply:
    """Decode a site's reply.

    Raises:
        WireError: it does not have the agreed form.
    """
    dxo = _collection(shareable)
    unexpected = dxo.data.keys() - _KINDS.keys()
    if unexpected:
        raise WireError(f"the reply has an unexpected part {sorted(unexpected)[0]!r}")
    model = _member(dxo, MODEL, DataKind.WEIGHTS)
    payload = _member(dxo, METHOD, DataKind.APP_DEFINED)
    prototypes, size = None, _size(model) + _size(payload)
    if PROTOTYPES in dxo.data:
        rows = _member(dxo, PROTOTYPES, DataKind.APP_DEFINED)
        prototypes = _class_sums(rows, num_classes, feature_size)
        size += _size(rows)
    report = dxo.meta.get(REPORT)
    return SiteReply(
        site=site,
        round=_number(dxo.meta, ROUND),
        samples=_number(dxo.meta, SAMPLES),
        model=_unpacked(dxo, model),
        prototypes=prototypes,
        payload=payload,
        scores=decode_scores(dxo.meta.get(SCORES), num_classes),
        report=report if isinstance(report, dict) else {},
        bytes_up=size,
        bytes_down=_number(dxo.meta, BYTES_DOWN),
    )


def encode_validation(scores: Scores | None) -> Shareable:
    """Encode the answer to a validate task."""
    return DXO(DataKind.METRICS, data={SCORES: encode_scores(scores)}).to_shareable()


def decode_validation(shareable: Shareable, num_classes: int) -> Scores | None:
    """Decode the answer to a validate task.

    Raises:
        WireError: it does not have the agreed form.
    """
    dxo = _dxo(shareable)
    if dxo.data_kind != DataKind.METRICS:
        raise WireError(f"a {dxo.data_kind} where METRICS were expected")
    return decode_scores(dxo.data.get(SCORES), num_classes)


def encode_model(model: Arrays) -> Shareable:
    """Encode the answer to a submit_model task, in the form FLARE's cross-site evaluation takes."""
    return DXO(DataKind.WEIGHTS, data=model).to_shareable()


def decode_model(shareable: Shareable) -> Arrays:
    """Decode the answer to a submit_model task.

    Raises:
        WireError: it does not have the agreed form.
    """
    return _member(DXO(DataKind.COLLECTION, data={MODEL: _dxo(shareable)}), MODEL, DataKind.WEIGHTS)


def encode_scores(scores: Scores | None) -> dict[str, Any] | None:
    """Encode scores as plain values."""
    if scores is None:
        return None
    confusion = None if scores.confusion is None else scores.confusion.tolist()
    return {
        "accuracy": scores.accuracy,
        "balanced_accuracy": scores.balanced_accuracy,
        "samples": scores.samples,
        "confusion": confusion,
    }


def decode_scores(content: Any, num_classes: int) -> Scores | None:
    """Decode scores.

    Raises:
        WireError: they are neither absent nor well formed.
    """
    if content is None:
        return None
    try:
        confusion = content["confusion"]
        matrix = None if confusion is None else np.array(confusion, dtype=np.int64)
        scores = Scores(
            accuracy=float(content["accuracy"]),
            balanced_accuracy=float(content["balanced_accuracy"]),
            samples=int(content["samples"]),
            confusion=matrix,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as e:
        raise WireError(f"the scores are not well formed ({e})") from e
    if not (0 <= scores.accuracy <= 1 and 0 <= scores.balanced_accuracy <= 1 and scores.samples >= 0):
        raise WireError("the scores are out of range")
    if matrix is not None and (matrix.shape != (num_classes, num_classes) or (matrix < 0).any()):
        raise WireError(f"the confusion matrix is not {num_classes} x {num_classes} counts")
    return scores


_KINDS = {MODEL: DataKind.WEIGHTS, PROTOTYPES: DataKind.APP_DEFINED, METHOD: DataKind.APP_DEFINED}


def _dxo(shareable: Shareable) -> DXO:
    try:
        return from_shareable(shareable)
    except (ValueError, AttributeError) as e:
        raise WireError(f"not a DXO ({e})") from e


def _collection(shareable: Shareable) -> DXO:
    dxo = _dxo(shareable)
    if dxo.data_kind != DataKind.COLLECTION or not isinstance(dxo.data, dict):
        raise WireError(f"a {dxo.data_kind} where a COLLECTION was expected")
    return dxo


def _member(dxo: DXO, name: str, kind: str) -> Arrays:
    member = dxo.data.get(name)
    if not isinstance(member, DXO) or member.data_kind != kind or not isinstance(member.data, dict):
        raise WireError(f"no {name!r} part of kind {kind}")
    for key, array in member.data.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise WireError(f"{key!r} in {name!r} is not a numeric array")
    return dict(member.data)


def _model_dxo(model: Arrays, halved: Collection[str]) -> DXO:
    if not halved:
        return DXO(DataKind.WEIGHTS, data=model)
    packed, exponents = pack(model, halved)
    return DXO(DataKind.WEIGHTS, data=packed, meta={EXPONENTS: exponents})


def _unpacked(dxo: DXO, model: Arrays) -> Arrays:
    """Return the model of a collection with all its parameters as float32."""
    exponents = (dxo.data[MODEL].meta or {}).get(EXPONENTS, {})
    if not isinstance(exponents, dict):
        raise WireError(f"{EXPONENTS!r} of the model are not a mapping")
    try:
        return unpack(model, exponents)
    except ValueError as e:
        raise WireError(f"the model cannot be unpacked: {e}") from e


def _class_sums(rows: Arrays, num_classes: int, feature_size: int) -> ClassSums:
    """Spread the shared rows over all classes."""
    if rows.keys() != {"classes", "sums", "counts"}:
        raise WireError(f"the prototypes have the keys {sorted(rows)}")
    classes, sums, counts = rows["classes"], rows["sums"], rows["counts"]
    if classes.dtype.kind != "i" or counts.dtype.kind != "i" or sums.dtype != np.float32:
        raise WireError("the prototypes' arrays do not have the agreed types")
    if classes.ndim != 1 or counts.shape != classes.shape or sums.shape != (len(classes), feature_size):
        raise WireError(f"the prototypes have shape {sums.shape} for {classes.shape} classes and {counts.shape} counts")
    if (classes < 0).any() or (classes >= num_classes).any() or len(np.unique(classes)) != len(classes):
        raise WireError("the prototypes name a class twice or one that does not exist")
    if (counts < 1).any():
        raise WireError("the prototypes have a count below one")
    spread = ClassSums.zeros(num_classes, feature_size)
    spread.sums[torch.from_numpy(classes)] = torch.from_numpy(sums).double()
    spread.counts[torch.from_numpy(classes)] = torch.from_numpy(counts).long()
    return spread


def _tensor(arrays: Arrays, name: str) -> torch.Tensor:
    if name not in arrays:
        raise WireError(f"the prototypes lack {name!r}")
    return torch.from_numpy(arrays[name])


def _number(meta: Mapping[str, Any] | None, name: str) -> int:
    value = (meta or {}).get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"{name!r} is {value!r}, not a whole number")
    return value


def _chain(meta: Mapping[str, Any] | None) -> str:
    """Return the chain's id; a site makes a folder of that name, so it must not be a path."""
    value = (meta or {}).get(CHAIN)
    if not isinstance(value, str) or not re.fullmatch(CHAIN_PATTERN, value):
        raise WireError(f"{CHAIN!r} is {value!r}, not a chain's id")
    return value


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())
