"""The messages of a secure sum are read back as they were, and strictly: one thing wrong, and none of it counts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.errors import WireError
from fedmr_med.secure.identity import MAX_CERTIFICATE, MAX_SIGNATURE
from fedmr_med.secure.messages import MOST_SITES, Confirmation, Keys, Masked, Offer, Shares
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.primitives import KEY, SEED
from fedmr_med.secure.summing import SEALED, SecureSum
from fedmr_med.wire.codec import Message
from fedmr_med.wire.secure import Answer, Question, decode_answer, decode_question, encode_answer, encode_question
from tests.helpers.secure import CHAIN, SESSION, begin, confirmed, masked, participants

SITES = ("site-000", "site-001", "site-002", "site-003")
SETTINGS = "0123456789abcdef"


@dataclass(frozen=True)
class Exchange:
    """A secure sum of four sites of which the last drops out before it is masked."""

    sites: dict[str, Participant]
    secure: SecureSum
    answers: dict[str, Answer]

    def question(self, step: str, **content: Any) -> Question:
        return Question(step, self.secure.release, SETTINGS, **content)


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    folder: Path = tmp_path_factory.mktemp("sites")
    sites = participants(folder, len(SITES))
    secure = masked(begin(sites, dict.fromkeys(SITES, np.arange(3, dtype=np.uint64))), sites, before_mask=SITES[3:])
    site = sites[SITES[0]]
    survivors = secure.survivors()
    confirmations = confirmed(secure, sites, survivors)
    shares = site.unmask(secure.release, secure.roster, survivors, confirmations)
    vector = Masked(SITES[0], secure.vectors[SITES[0]])
    answers: dict[str, Answer] = {
        "keys": site.keys(CHAIN, SESSION),
        "offer": secure.offers[SITES[0]],
        "mask": vector,
        "confirm": Confirmation(SITES[0], b"signature"),
        "unmask": shares,
    }
    return Exchange(sites, secure, answers)


def refused_answer(exchange: Exchange, step: str, change: Callable[[Message], Message]) -> None:
    """Check that the change alone makes the message one that is not read."""
    message = encode_answer(exchange.answers[step])
    decode_answer(message, SITES[0])
    with pytest.raises(WireError):
        decode_answer(change(message), SITES[0])


def with_array(part: str, name: str, array: np.ndarray) -> Callable[[Message], Message]:
    return lambda message: Message(message.parts | {part: message.parts[part] | {name: array}}, message.meta)


def with_meta(**values: Any) -> Callable[[Message], Message]:
    return lambda message: Message(message.parts, message.meta | values)


@pytest.mark.parametrize("step", ["keys", "offer", "mask", "confirm", "unmask"])
def test_an_answer_is_read_as_it_was_written(exchange: Exchange, step: str) -> None:
    answer = exchange.answers[step]
    read = decode_answer(encode_answer(answer), SITES[0])
    if isinstance(answer, Masked):
        assert isinstance(read, Masked)
        assert read.vector.tolist() == answer.vector.tolist()
    else:
        assert read == answer
    if isinstance(answer, Shares):
        assert set(answer.own) == set(SITES[:3])
        assert set(answer.pairs) == {SITES[3]}


def test_a_question_is_read_as_it_was_written(exchange: Exchange) -> None:
    secure = exchange.secure
    asked = [
        exchange.question("keys"),
        exchange.question("offer", roster=secure.roster),
        exchange.question("mask", roster=secure.roster, offers=tuple(secure.offered())),
        exchange.question("confirm", roster=secure.roster, survivors=secure.survivors()),
        exchange.question(
            "unmask",
            roster=secure.roster,
            survivors=secure.survivors(),
            confirmations=tuple(Confirmation(site, site.encode()) for site in SITES[:3]),
        ),
    ]
    for question in asked:
        assert decode_question(encode_question(question)) == question


@pytest.mark.parametrize("step", ["keys", "offer", "mask", "confirm", "unmask"])
def test_an_answer_says_nothing_beside_its_arrays(exchange: Exchange, step: str) -> None:
    """A value that nobody reads is a way out for what the policy keeps in."""
    refused_answer(exchange, step, with_meta(comment="17 images"))
    refused_answer(exchange, step, lambda m: Message(m.parts | {"more": {}}, m.meta))
    refused_answer(exchange, step, with_array(step, "more", np.zeros(1, np.uint8)))
    refused_answer(exchange, step, with_meta(step="sum"))
    refused_answer(exchange, step, lambda m: Message({step: {}}, m.meta))


@pytest.mark.parametrize("names", [None, "site-000", [1, 2, 3], ["site-001", "site-000", "site-002"], [*SITES]])
def test_shares_are_of_named_sites_in_order(exchange: Exchange, names: object) -> None:
    refused_answer(exchange, "unmask", with_meta(own=names))


def test_nobody_shares_a_secret_twice(exchange: Exchange) -> None:
    own = np.zeros((2, SEED), np.uint8)
    change = with_array("unmask", "own", own)
    refused_answer(exchange, "unmask", lambda m: with_meta(own=["site-000", "site-000"])(change(m)))


@pytest.mark.parametrize(
    ("step", "name", "array"),
    [
        ("keys", "public", np.zeros(KEY - 1, np.uint8)),
        ("keys", "public", np.zeros(KEY + 1, np.uint8)),
        ("keys", "public", np.zeros(KEY, np.int8)),
        ("keys", "public", np.zeros((1, KEY), np.uint8)),
        ("keys", "certificate", np.zeros(MAX_CERTIFICATE + 1, np.uint8)),
        ("keys", "signature", np.zeros(MAX_SIGNATURE + 1, np.uint8)),
        ("offer", "public", np.zeros(KEY - 1, np.uint8)),
        ("offer", "committed", np.zeros(KEY + 1, np.uint8)),
        ("offer", "signature", np.zeros(MAX_SIGNATURE + 1, np.uint8)),
        ("offer", "sealed", np.zeros((4, SEALED), np.int8)),
        ("offer", "sealed", np.zeros((4, SEALED + 1), np.uint8)),
        ("offer", "sealed", np.zeros((0, SEALED), np.uint8)),
        ("offer", "sealed", np.zeros((MOST_SITES + 1, SEALED), np.uint8)),
        ("offer", "sealed", np.ones((4, SEALED), np.uint8)),
        ("offer", "own", np.array([0], np.int32)),
        ("offer", "own", np.array([0, 1])),
        ("offer", "own", np.array([-4])),
        ("offer", "own", np.array([4])),
        ("offer", "own", np.array([1])),
        ("confirm", "signature", np.zeros(MAX_SIGNATURE + 1, np.uint8)),
        ("confirm", "signature", np.zeros(8, np.int8)),
        ("mask", "vector", np.zeros(3, np.int64)),
        ("mask", "vector", np.zeros((1, 3), np.uint64)),
        ("unmask", "own", np.zeros((3, SEED), np.int8)),
        ("unmask", "own", np.zeros((3, SEED - 1), np.uint8)),
        ("unmask", "own", np.zeros((2, SEED), np.uint8)),
    ],
)
def test_arrays_have_the_agreed_type_and_size(exchange: Exchange, step: str, name: str, array: np.ndarray) -> None:
    refused_answer(exchange, step, with_array(step, name, array))


def test_certificates_and_signatures_may_be_as_long_as_was_agreed() -> None:
    longest = Keys("a", bytes(KEY), bytes(MAX_CERTIFICATE), bytes(MAX_SIGNATURE))
    assert decode_answer(encode_answer(longest), "a") == longest


def test_an_offer_is_for_as_many_sites_as_there_may_be() -> None:
    rows = (b"", *(bytes(SEALED - 1) + b"1" for _ in range(MOST_SITES - 1)))
    largest = Offer("a", bytes(KEY), bytes(KEY), rows, b"")
    assert decode_answer(encode_answer(largest), "a") == largest
    last = Offer("a", bytes(KEY), bytes(KEY), (rows[1], b""), b"")
    assert decode_answer(encode_answer(last), "a") == last


@pytest.mark.parametrize("name", ["", "x" * 201, 7, None])
@pytest.mark.parametrize("key", ["survivors", "sites", "offered", "confirmed"])
def test_a_question_names_its_sites(exchange: Exchange, key: str, name: object) -> None:
    secure = exchange.secure
    question = exchange.question(
        "mask",
        roster=secure.roster,
        offers=tuple(secure.offered()),
        survivors=SITES,
        confirmations=(Confirmation(SITES[0], b""),),
    )
    message = encode_question(question)
    names = message.meta[key]
    with pytest.raises(WireError):
        decode_question(with_meta(**{key: [name, *names[1:]]})(message))
    with pytest.raises(WireError):
        decode_question(with_meta(**{key: tuple(names)})(message))


def test_survivors_may_have_long_names_and_be_many_but_not_more_than_there_may_be_sites(exchange: Exchange) -> None:
    most = ("x" * 200, *(f"site-{number}" for number in range(MOST_SITES - 1)))
    message = encode_question(exchange.question("unmask", survivors=most))
    assert decode_question(message).survivors == most
    with pytest.raises(WireError):
        decode_question(with_meta(survivors=[*most, "one-more"])(message))


def test_an_offer_belongs_to_the_roster_it_comes_with(exchange: Exchange) -> None:
    secure = exchange.secure
    message = encode_question(exchange.question("mask", roster=secure.roster, offers=tuple(secure.offered())))
    with pytest.raises(WireError):
        decode_question(with_meta(offered=[SITES[1], SITES[0], *SITES[2:]])(message))
    smaller = encode_question(exchange.question("mask", roster=type(secure.roster)(secure.roster.entries[:3])))
    with pytest.raises(WireError):
        decode_question(
            Message(smaller.parts | {"offers": message.parts["offers"]}, smaller.meta | {"offered": [*SITES]})
        )


@pytest.mark.parametrize("key", ["chain", "session", "release"])
def test_chain_session_and_release_are_no_paths(exchange: Exchange, key: str) -> None:
    message = encode_question(exchange.question("keys"))
    with pytest.raises(WireError):
        decode_question(with_meta(**{key: "../other"})(message))


def test_there_are_five_steps(exchange: Exchange) -> None:
    with pytest.raises(WireError):
        decode_question(encode_question(exchange.question("all-at-once")))


def test_a_step_is_a_text(exchange: Exchange) -> None:
    """An array, which compares with nothing as one value, ended the job of the server."""
    refused_answer(exchange, "keys", with_meta(step=np.ones((2, 2))))
    with pytest.raises(WireError):
        decode_question(with_meta(step=np.ones((2, 2)))(encode_question(exchange.question("keys"))))
