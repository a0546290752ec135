"""The wire format of secure sums: the task ``secure``, in five steps. Keys and shares travel as bytes in arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.schema import brief
from fedmr_med.secure.identity import MAX_CERTIFICATE, MAX_SIGNATURE
from fedmr_med.secure.messages import MOST_SITES, Confirmation, Keys, Masked, Offer, Part, Release, Roster, Shares
from fedmr_med.secure.primitives import KEY, SEED
from fedmr_med.secure.summing import SEALED
from fedmr_med.wire.agreement import agreed_settings, agreement
from fedmr_med.wire.codec import CHAIN, Message, chain_of

STEP, SESSION, RELEASE, SITES, OFFERED, SURVIVORS = "step", "session", "release", "sites", "offered", "survivors"
CONFIRMED = "confirmed"
ASK_KEYS, ASK_OFFER, ASK_MASKED, ASK_CONFIRMED, ASK_SHARES = "keys", "offer", "mask", "confirm", "unmask"
ASK_PART = "leave"
STEPS = (ASK_KEYS, ASK_OFFER, ASK_MASKED, ASK_CONFIRMED, ASK_SHARES, ASK_PART)
Answer = Keys | Offer | Masked | Confirmation | Shares | Part
_CONFIRMATION = {"signature": range(MAX_SIGNATURE + 1)}
_KEYS = {"public": range(KEY, KEY + 1), "certificate": range(MAX_CERTIFICATE + 1), **_CONFIRMATION}
_OFFER = {"public": range(KEY, KEY + 1), "committed": range(KEY, KEY + 1), **_CONFIRMATION}
NOBODY = Roster(())


def session_of(settings: str, drawn: str) -> str:
    """Return the id of a session: what the server drew, and the whole digest of the job's settings.

    Sites sign their keys for it. So all of a roster have the same settings: a job that shares nothing, sent to all
    others, would make a total one site's own.
    """
    return f"{drawn}-{settings}"


@dataclass(frozen=True)
class Question:
    """What the server asks of a site in one step.

    Attributes:
        step: one of :data:`STEPS`.
        release: for ``keys`` the name does not matter.
        settings: digest of the server's settings of the job.
        roster: the sites with keys, for all steps but ``keys`` and ``leave``.
        offers: for ``mask``.
        survivors: whose vectors arrived, for ``confirm`` and ``unmask``; whose stay, for ``leave``.
        confirmations: of these sites, for ``unmask``.
    """

    step: str
    release: Release
    settings: str
    roster: Roster = NOBODY
    offers: tuple[Offer, ...] = ()
    survivors: tuple[str, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()


def encode_question(question: Question) -> Message:
    """Encode what every site is asked."""
    release = question.release
    parts: dict[str, Arrays] = {"roster": {}, "offers": {}, "confirmations": {}}
    for number, entry in enumerate(question.roster.entries):
        parts["roster"] |= _named(number, _written(entry, _KEYS))
    for number, offer in enumerate(question.offers):
        parts["offers"] |= _named(number, _offer(offer))
    for number, confirmation in enumerate(question.confirmations):
        parts["confirmations"] |= _named(number, _written(confirmation, _CONFIRMATION))
    meta = {
        **agreement(question.settings),
        STEP: question.step,
        CHAIN: release.chain,
        SESSION: release.session,
        RELEASE: release.name,
        SITES: list(question.roster.names),
        OFFERED: [offer.site for offer in question.offers],
        SURVIVORS: list(question.survivors),
        CONFIRMED: [confirmation.site for confirmation in question.confirmations],
    }
    return Message(parts, meta)


def decode_question(message: Message) -> Question:
    """Decode a question.

    Raises:
        WireError: it does not have the agreed form.
    """
    meta, settings = message.meta, agreed_settings(message.meta)
    if not _is_step(meta.get(STEP)):
        raise WireError("the question is none of the steps of a secure sum", code="wire.form", key="step")
    release = Release(chain_of(meta), chain_of(meta, SESSION), chain_of(meta, RELEASE))
    rows = {part: message.parts.get(part, {}) for part in ("roster", "offers", "confirmations")}
    sites, offered = _names(meta, SITES), _names(meta, OFFERED)
    entries = [_read_keys(site, _numbered(rows["roster"], number)) for number, site in enumerate(sites)]
    offers = [_read_offer(site, _numbered(rows["offers"], number), sites) for number, site in enumerate(offered)]
    confirmations = tuple(
        _read_confirmation(site, _numbered(rows["confirmations"], number))
        for number, site in enumerate(_names(meta, CONFIRMED))
    )
    survivors = _names(meta, SURVIVORS)
    return Question(meta[STEP], release, settings, Roster.of(entries), tuple(offers), survivors, confirmations)


def encode_answer(answer: Answer) -> Message:
    """Encode a site's answer."""
    if isinstance(answer, Keys):
        return Message({ASK_KEYS: _written(answer, _KEYS)}, {STEP: ASK_KEYS})
    if isinstance(answer, Offer):
        return Message({ASK_OFFER: _offer(answer)}, {STEP: ASK_OFFER})
    if isinstance(answer, Masked):
        return Message({ASK_MASKED: {"vector": answer.vector}}, {STEP: ASK_MASKED})
    if isinstance(answer, Part):
        return Message({ASK_PART: {"vector": answer.vector}}, {STEP: ASK_PART})
    if isinstance(answer, Confirmation):
        return Message({ASK_CONFIRMED: _written(answer, _CONFIRMATION)}, {STEP: ASK_CONFIRMED})
    names = {"own": sorted(answer.own), "pairs": sorted(answer.pairs)}
    shares = {"own": _stacked(answer.own), "pairs": _stacked(answer.pairs)}
    return Message({ASK_SHARES: shares}, {STEP: ASK_SHARES, **names})


def decode_answer(message: Message, site: str) -> Answer:
    """Decode a site's answer, all of it.

    Raises:
        WireError: it does not have the agreed form.
    """
    step = message.meta.get(STEP)
    if not _is_step(step) or message.parts.keys() != {step}:
        raise WireError("the answer is none of the steps of a secure sum", code="wire.form", key="step")
    known = {STEP, "own", "pairs"} if step == ASK_SHARES else {STEP}
    if message.meta.keys() != known:
        raise WireError("the answer has an unexpected value beside its arrays", code="wire.unasked", key="step")
    arrays = message.parts[step]
    if step == ASK_KEYS:
        return _read_keys(site, arrays)
    if step == ASK_OFFER:
        return _read_offer(site, arrays, None)
    if step in (ASK_MASKED, ASK_PART):
        if arrays.keys() != {"vector"} or arrays["vector"].dtype != np.uint64 or arrays["vector"].ndim != 1:
            raise WireError("the vector does not have the agreed form", code="wire.form", key="masked")
        return Masked(site, arrays["vector"]) if step == ASK_MASKED else Part(site, arrays["vector"])
    if step == ASK_CONFIRMED:
        return _read_confirmation(site, arrays)
    if arrays.keys() != {"own", "pairs"}:
        raise WireError("the shares do not have the agreed form", code="wire.form", key="shares")
    own, pairs = (_shares(arrays[kind], _names(message.meta, kind)) for kind in ("own", "pairs"))
    return Shares(site, own, pairs)


def _read_keys(site: str, arrays: Arrays) -> Keys:
    return Keys(site, **_read(arrays, _KEYS, "a key", "keys"))


def _offer(offer: Offer) -> Arrays:
    rows = [part or bytes(SEALED) for part in offer.sealed]
    own = np.array([number for number, part in enumerate(offer.sealed) if not part], dtype=np.int64)
    sealed = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), SEALED)
    return _written(offer, _OFFER) | {"sealed": sealed, "own": own}


def _read_offer(site: str, arrays: Arrays, sites: Sequence[str] | None) -> Offer:
    if arrays.keys() != {*_OFFER, "sealed", "own"}:
        raise WireError("an offer does not have the agreed form", code="wire.form", key="offer")
    sealed, own = arrays["sealed"], arrays["own"]
    if sealed.dtype != np.uint8 or sealed.shape[1:] != (SEALED,) or not 1 <= len(sealed) <= MOST_SITES:
        raise WireError("the encrypted shares of an offer do not have the agreed form", code="wire.form", key="sealed")
    if own.dtype != np.int64 or own.shape != (1,) or not 0 <= own[0] < len(sealed) or sealed[own[0]].any():
        raise WireError("an offer does not say which share is the site's own", code="wire.form", key="own")
    if sites is not None and (len(sealed) != len(sites) or sites[int(own[0])] != site):
        raise WireError("an offer is not for the roster that came with it", code="wire.form", key="sites")
    rows = tuple(b"" if number == own[0] else row.tobytes() for number, row in enumerate(sealed))
    return Offer(site, sealed=rows, **_read({name: arrays[name] for name in _OFFER}, _OFFER, "an offer", "offer"))


def _read_confirmation(site: str, arrays: Arrays) -> Confirmation:
    return Confirmation(site, **_read(arrays, _CONFIRMATION, "a confirmation", "confirm"))


def _written(message: Keys | Offer | Confirmation, names: Iterable[str]) -> Arrays:
    return {name: np.frombuffer(getattr(message, name), np.uint8) for name in names}


def _read(arrays: Arrays, sizes: Mapping[str, range], what: str, key: str) -> dict[str, bytes]:
    """Return the bytes of each array; there is exactly one for each of ``sizes``, which says how long it can be."""
    if arrays.keys() != sizes.keys():
        raise WireError(f"{what} does not have the agreed form", code="wire.form", key=key)
    for name, allowed in sizes.items():
        if arrays[name].dtype != np.uint8 or arrays[name].ndim != 1 or len(arrays[name]) not in allowed:
            raise WireError(
                "keys, certificates and signatures do not have the agreed sizes", code="wire.form", key="bytes"
            )
    return {name: arrays[name].tobytes() for name in sizes}


def _is_step(value: object) -> TypeGuard[str]:
    """Whether a value of any type is a step; an array can be compared with none."""
    return isinstance(value, str) and value in STEPS


def _stacked(shares: Mapping[str, bytes]) -> npt.NDArray[np.uint8]:
    content = b"".join(shares[name] for name in sorted(shares))
    return np.frombuffer(content, np.uint8).reshape(len(shares), SEED)


def _shares(rows: npt.NDArray[Any], names: Sequence[str]) -> dict[str, bytes]:
    if rows.dtype != np.uint8 or rows.shape != (len(names), SEED) or list(names) != sorted(set(names)):
        raise WireError("the shares do not have the agreed form", code="wire.form", key="shares")
    return {name: row.tobytes() for name, row in zip(names, rows, strict=True)}


def _named(number: int, arrays: Arrays) -> Arrays:
    return {f"{number}.{name}": array for name, array in arrays.items()}


def _numbered(arrays: Arrays, number: int) -> Arrays:
    prefix = f"{number}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _names(meta: Any, key: str) -> tuple[str, ...]:
    names = meta.get(key)
    if not isinstance(names, list) or len(names) > MOST_SITES or not all(isinstance(name, str) for name in names):
        raise WireError(f"{brief(key)!r} is not a list of sites", code="wire.form", key=key)
    if any(not name or len(name) > 200 for name in names):
        raise WireError("a site has no name, or too long a one", code="wire.range", key=key)
    return tuple(names)
