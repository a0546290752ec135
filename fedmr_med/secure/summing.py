"""The server's side of a secure sum: passes messages on, and adds up what it cannot read."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedmr_med.arrays import Vector
from fedmr_med.errors import WireError
from fedmr_med.secure import FEWEST, primitives
from fedmr_med.secure.messages import Confirmation, Masked, Offer, Release, Roster, Shares
from fedmr_med.secure.primitives import KEY, NONCE, SEED, TAG

SEALED = NONCE + 2 * SEED + TAG
"""Bytes of the encrypted shares for one site."""


def signed_mask(private: X25519PrivateKey, own: str, other: str, key: bytes, context: bytes, size: int) -> Vector:
    """Return what the site ``own`` adds for ``other``: the negative of what ``other`` adds for it."""
    stream = primitives.mask(primitives.agree(private, key), context, size)
    return stream if own < other else np.negative(stream)


class SecureSum:
    """One release, from the roster to the total. Each ``take`` raises WireError for an answer that is of no use.

    Args:
        size: length of the vectors.

    Raises:
        WireError: there are too few sites for any sum.
    """

    def __init__(self, release: Release, roster: Roster, size: int):
        if len(roster.entries) < FEWEST:
            raise WireError(
                f"a secure sum needs {FEWEST} sites, and {len(roster.entries)} have keys", code="secure.too-few-sites"
            )
        self.release, self.roster, self.size = release, roster, size
        self.offers: dict[str, Offer] = {}
        self.vectors: dict[str, Vector] = {}
        self._confirmations: dict[str, Confirmation] = {}
        self._shares: dict[str, Shares] = {}
        self._context = roster.context(release)
        self._survivors: tuple[str, ...] = ()

    def take_offer(self, offer: Offer) -> None:
        """Take a site's offer."""
        names = self.roster.names
        if offer.site not in names or offer.site in self.offers or self.vectors:
            raise WireError("an offer that nobody asked for", code="wire.unasked", key="offer")
        sizes = [0 if name == offer.site else SEALED for name in names]
        if [len(part) for part in offer.sealed] != sizes or len(offer.public) != KEY or len(offer.committed) != KEY:
            raise WireError("the offer does not have the agreed form", code="wire.form", key="offer")
        self.offers[offer.site] = offer

    def offered(self) -> Sequence[Offer]:
        """Return the offers, in the order of the sites.

        Raises:
            WireError: too few sites made one.
        """
        self._enough(self.offers, "offers")
        return [self.offers[site] for site in sorted(self.offers)]

    def take_masked(self, masked: Masked) -> None:
        """Take a site's masked vector; after the unmasking has begun it is late, and stays masked for ever."""
        if masked.site not in self.offers or masked.site in self.vectors:
            raise WireError("a masked vector that nobody asked for", code="wire.unasked", key="masked")
        if self._survivors:
            raise WireError("the masked vector came after the unmasking had begun", code="wire.late", key="masked")
        if masked.vector.dtype != np.uint64 or masked.vector.shape != (self.size,):
            raise WireError("the masked vector does not have the agreed form", code="wire.form", key="masked")
        self.vectors[masked.site] = masked.vector

    def survivors(self) -> tuple[str, ...]:
        """Return whose vectors count, and take no further ones.

        Raises:
            WireError: too few of them arrived.
        """
        self._enough(self.vectors, "masked vectors")
        self._survivors = tuple(sorted(self.vectors))
        return self._survivors

    def take_confirmation(self, confirmation: Confirmation) -> None:
        """Take a survivor's word; the sites look at its signature."""
        if confirmation.site not in self._survivors or confirmation.site in self._confirmations:
            raise WireError("a confirmation that nobody asked for", code="wire.unasked", key="confirm")
        self._confirmations[confirmation.site] = confirmation

    def confirmations(self) -> Sequence[Confirmation]:
        """Return the confirmations, in the order of the sites.

        Raises:
            WireError: too few survivors gave theirs.
        """
        self._enough(self._confirmations, "confirmations")
        return [self._confirmations[site] for site in sorted(self._confirmations)]

    def take_shares(self, shares: Shares) -> None:
        """Take a site's shares."""
        if shares.site not in self._confirmations or shares.site in self._shares:
            raise WireError("shares that nobody asked for", code="wire.unasked", key="shares")
        sized = all(len(share) == SEED for share in (*shares.own.values(), *shares.pairs.values()))
        if shares.own.keys() != set(self._survivors) or shares.pairs.keys() != set(self._dropped) or not sized:
            raise WireError("the shares are not the ones that were asked for", code="secure.share")
        self._shares[shares.site] = shares

    def total(self) -> Vector:
        """Return the sum of the survivors' vectors, modulo 2^64.

        Raises:
            WireError: there are too few shares, or wrong ones; the release is lost then.
        """
        self._enough(self._shares, "answers to the unmasking")
        total = np.zeros(self.size, np.uint64)
        for site, vector in self.vectors.items():
            total += vector - primitives.mask(self._seed(site, "own"), self._context, self.size)
        for gone in self._dropped:
            private, _ = primitives.key_pair(self._seed(gone, "pairs"), self._context)
            for site in self.vectors:
                # What ``site`` added for ``gone`` is the negative of what ``gone`` would have added for ``site``.
                total += signed_mask(private, gone, site, self.offers[site].public, self._context, self.size)
        return total

    @property
    def _dropped(self) -> tuple[str, ...]:
        return tuple(sorted(self.offers.keys() - set(self._survivors)))

    def _seed(self, site: str, kind: Literal["own", "pairs"]) -> bytes:
        """Return the seed of a site's own mask, or of its key, that fits the site's offer."""
        offer = self.offers[site]

        def fits(seed: bytes) -> bool:
            if kind == "own":
                return primitives.commitment(seed, self._context) == offer.committed
            return primitives.key_pair(seed, self._context)[1] == offer.public

        numbers = {name: number for number, name in enumerate(self.roster.names)}
        shares = {numbers[answer.site]: getattr(answer, kind)[site] for answer in self._shares.values()}
        try:
            return primitives.combine(shares, self.roster.threshold, fits)
        except WireError as e:
            raise e.at(site) from e

    def _enough(self, arrived: Mapping[str, object], what: str) -> None:
        needed = self.roster.threshold
        if len(arrived) < needed:
            raise WireError(
                f"a secure sum of {len(self.roster.entries)} sites needs {needed} {what}, not {len(arrived)}",
                code="secure.too-few-left",
            )
