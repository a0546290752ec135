"""Shares give back what was split, as pycryptodome puts them together."""

import os

from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.secure.primitives import combine, split
from tests.helpers.errors import raises


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(2, 12), st.binary(min_size=16, max_size=16))
def test_any_holders_give_the_seed_that_the_library_gives(data: st.DataObject, parties: int, seed: bytes) -> None:
    needed = data.draw(st.integers(2, parties))
    holders = data.draw(st.permutations(range(parties)))[:needed]
    shares = dict(enumerate(split(seed, needed, parties)))
    chosen = {holder: shares[holder] for holder in holders}
    assert bytes(Shamir.combine([(holder + 1, share) for holder, share in chosen.items()])) == seed
    assert combine(chosen, needed, lambda found: found == seed) == seed


def test_fewer_shares_do_not_give_it() -> None:
    seed = os.urandom(16)
    shares = dict(enumerate(split(seed, 4, 6)))
    with raises("secure.share"):
        combine({holder: shares[holder] for holder in range(3)}, 3, lambda found: found == seed)
