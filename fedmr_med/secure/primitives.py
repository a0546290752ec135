"""The cryptography of secure sums, all of it from ``cryptography`` and ``pycryptodome``.

Only the server's arithmetic on shares that it was given, where nothing is secret from it, is written here: the library
would work out the same coefficients for every secret.

Every secret that is shared is a seed of 16 bytes, the size of pycryptodome's Shamir shares: the key of an X25519 pair
is derived from it. Shamir's scheme has no authentication, so whoever puts a seed together must compare it with what
its owner signed: the public key, or :func:`commitment`.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from itertools import combinations, islice
from operator import xor

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmr_med.arrays import Vector
from fedmr_med.errors import WireError

SEED, KEY, NONCE, TAG = 16, 32, 12, 16
"""Bytes of a seed or share, of a public key, and of what AES-GCM adds."""

_MOST_TRIES = 2000
_FIELD = 2**128 + 2**7 + 2**2 + 2 + 1
"""The polynomial that defines GF(2^128) there, a bit for each coefficient."""


def derive(secret: bytes, purpose: str, context: bytes, length: int = KEY) -> bytes:
    """Return key material for one purpose in one context (HKDF-SHA256)."""
    return HKDF(SHA256(), length, salt=None, info=b"fedmr-med " + purpose.encode() + b"\0" + context).derive(secret)


def key_pair(seed: bytes, context: bytes) -> tuple[X25519PrivateKey, bytes]:
    """Return the private key that a seed stands for, and its public key."""
    private = X25519PrivateKey.from_private_bytes(derive(seed, "key", context))
    return private, private.public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret that two parties have in common.

    Raises:
        WireError: the public key is none, or one that gives everybody the same secret.
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as e:
        raise WireError("a public key is not valid", code="secure.key") from e


def mask(secret: bytes, context: bytes, size: int) -> Vector:
    """Return ``size`` numbers below 2^64 that look random to whoever does not know the secret (AES-256-CTR).

    The key is used for this one stream, so the counter may start at zero.
    """
    stream = Cipher(algorithms.AES(derive(secret, "mask", context)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)


def seal(secret: bytes, context: bytes, nonce: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate (AES-256-GCM); the context is authenticated too."""
    return nonce + AESGCM(derive(secret, "seal", context)).encrypt(nonce, content, context)


def unseal(secret: bytes, context: bytes, sealed: bytes) -> bytes:
    """Decrypt.

    Raises:
        WireError: it was sealed with another key or for another context, or was changed.
    """
    try:
        return AESGCM(derive(secret, "seal", context)).decrypt(sealed[:NONCE], sealed[NONCE:], context)
    except InvalidTag as e:
        raise WireError("an encrypted share was changed, or is meant for somebody else", code="secure.share") from e


def split(seed: bytes, threshold: int, parties: int) -> list[bytes]:
    """Return one share for each party; any ``threshold`` of them give the seed, fewer tell nothing."""
    return [share for _, share in Shamir.split(threshold, parties, seed)]


def combine(shares: Mapping[int, bytes], threshold: int, fits: Callable[[bytes], bool]) -> bytes:
    """Put the seed together that ``fits``, from the shares of parties by their number from 0.

    With more shares than needed, some may be wrong: other choices of them are tried.

    Raises:
        WireError: no choice gives the seed that its owner signed for.
    """
    numbered = [(party + 1, share) for party, share in sorted(shares.items())]
    for choice in islice(combinations(numbered, threshold), _MOST_TRIES):
        coefficients = _coefficients(tuple(number for number, _ in choice))
        parts = (
            _times(int.from_bytes(share, "big"), coefficient)
            for (_, share), coefficient in zip(choice, coefficients, strict=True)
        )
        seed = reduce(xor, parts).to_bytes(SEED, "big")
        if fits(seed):
            return seed
    raise WireError("the shares do not give the secret that its owner signed for", code="secure.share")


@lru_cache(maxsize=16)
def _coefficients(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Return by what to multiply the share of each holder, so that the products add up to the secret (Lagrange)."""
    product = reduce(_times, holders)
    denominators = (
        reduce(_times, (holder ^ other for other in holders if other != holder), holder) for holder in holders
    )
    return tuple(_times(product, _inverse(denominator)) for denominator in denominators)


def _times(a: int, b: int) -> int:
    """Multiply in GF(2^128), the field of pycryptodome's shares."""
    a, b = max(a, b), min(a, b)
    product = 0
    while b:
        if b & 1:
            product ^= a
        b >>= 1
        a <<= 1
        if a >> 128:
            a ^= _FIELD
    return product


def _inverse(element: int) -> int:
    """Return 1 / ``element`` in GF(2^128), for one that is not zero (Euclid's algorithm on polynomials)."""
    rest, divisor, inverse, other = element, _FIELD, 1, 0
    while rest != 1:
        shift = rest.bit_length() - divisor.bit_length()
        if shift < 0:
            rest, divisor, inverse, other, shift = divisor, rest, other, inverse, -shift
        rest ^= divisor << shift
        inverse ^= other << shift
    return inverse


def commitment(seed: bytes, context: bytes) -> bytes:
    """Return what binds a site to a random seed without telling it."""
    return digest(b"commitment", context, seed)


def digest(*parts: bytes) -> bytes:
    """Return a hash of parts, each with its length, so that no two lists of parts give the same."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.digest()
