"""A malicious server, with sites that collude with it, against the sites of a secure sum that keep to the protocol."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedmr_med.arrays import Vector
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.secure import primitives
from fedmr_med.secure.messages import Confirmation, Offer, Release, Roster, offers_digest
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import signed_mask
from tests.helpers.secure import CHAIN, NAME, SESSION

P, T = ParamSpec("P"), TypeVar("T")
SIZE = 5


class Signed:
    """Signs with a key that all sites know to be this site's: quicker than the certificates of a federation."""

    def __init__(self, site: str, directory: dict[str, bytes]):
        self._key, self._directory = Ed25519PrivateKey.generate(), directory
        self.certificate = self._key.public_key().public_bytes_raw()
        directory[site] = self.certificate

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def check(self, site: str, certificate: bytes, message: bytes, signature: bytes) -> None:
        try:
            if self._directory[site] != certificate:
                raise InvalidSignature
            Ed25519PublicKey.from_public_bytes(certificate).verify(signature, message)
        except InvalidSignature as e:
            raise WireError(f"not signed by {site}", code="secure.signature") from e


class MaliciousServer:
    """Shows every honest site what it likes, and keeps whatever it gets. The first site is the one it is after.

    Args:
        folder: where sites keep their state.
        count: sites.
        colluding: how many of them, the last ones, give the server all that they hold, and sign what it wants.

    Attributes:
        names, honest, helpers: all sites, those that keep to the protocol, and those that collude.
        vectors: what the sites put in.
        offers: what each site offered to the others.
        masked: the vectors that arrived.
        opened: for which offers and survivors an honest site gave its shares.
        own, pairs: shares that the server has: by whose secret they are of, and by who held them.
    """

    def __init__(self, folder: Path, count: int, colluding: int):
        directory: dict[str, bytes] = {}
        self.names = [f"site-{number:02}" for number in range(count)]
        self.honest, self.helpers = self.names[: count - colluding], self.names[count - colluding :]
        self.sites = {name: Participant(name, folder / name, Signed(name, directory)) for name in self.names}
        generator = np.random.default_rng(count)
        self.vectors = {name: generator.integers(0, 1000, SIZE).astype(np.uint64) for name in self.names}
        for name, site in self.sites.items():
            site.hold(NAME, self.vectors[name])
        self.release = Release(CHAIN, SESSION, NAME)
        self.roster = Roster.of([site.keys(CHAIN, SESSION) for site in self.sites.values()])
        self.context = self.roster.context(self.release)
        self.offers = {name: site.offer(self.release, self.roster) for name, site in self.sites.items()}
        self.masked: dict[str, Vector] = {}
        self.opened: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        self.own: dict[str, dict[int, bytes]] = {name: {} for name in self.names}
        self.pairs: dict[str, dict[int, bytes]] = {name: {} for name in self.names}

    @property
    def target(self) -> str:
        """Whose vector the server wants."""
        return self.names[0]

    def attack(self, shown: Mapping[str, Collection[str]], told: Mapping[str, Sequence[str]]) -> None:
        """Show each honest site the offers of some sites, tell it that the vectors of some arrived, and take all.

        Args:
            shown: by honest site, whose offers; colluding sites see all.
            told: by honest site, whose vectors arrived; one that is left out is not asked.
        """
        for name, site in self.sites.items():
            offers = self._offers(shown[name] if name in self.honest else self.names)
            masked = _unless_refused(site.mask, self.release, self.roster, offers)
            if masked is not None:
                self.masked[name] = masked.vector
        confirmations = [
            _unless_refused(self.sites[name].confirm, self.release, self.roster, survivors)
            for name, survivors in told.items()
        ]
        given = [confirmation for confirmation in confirmations if confirmation is not None]
        for name, survivors in told.items():
            signed = [*given, *(self._forged(helper, shown[name], survivors) for helper in self.helpers)]
            shares = _unless_refused(self.sites[name].unmask, self.release, self.roster, survivors, signed)
            if shares is not None:
                self.opened.add((tuple(sorted(shown[name])), tuple(sorted(survivors))))
                for secret, kind in ((self.own, shares.own), (self.pairs, shares.pairs)):
                    for other, share in kind.items():
                        secret[other][self.names.index(name)] = share
        for helper in self.helpers:
            for other, (pair, own) in self.sites[helper]._state(self.release.name)["shares"].items():
                self.pairs[other][self.names.index(helper)] = bytes.fromhex(pair)
                self.own[other][self.names.index(helper)] = bytes.fromhex(own)

    def knows(self, shares: Mapping[int, bytes]) -> bool:
        """Whether the server has enough shares of a secret."""
        return len(shares) >= self.roster.threshold

    def stolen(self, shown: Collection[str]) -> Vector | None:
        """Return the target's vector, if what the server has gives it away.

        Args:
            shown: whose offers the target was shown, and so whose masks are on its vector.
        """
        others = [name for name in shown if name != self.target]
        secrets = [self.own[self.target], *(self.pairs[name] for name in others if name in self.honest)]
        if self.target not in self.masked or not all(map(self.knows, secrets)):
            return None
        needed, offer = self.roster.threshold, self.offers[self.target]
        context = self.context
        seed = primitives.combine(
            self.own[self.target], needed, lambda seed: primitives.commitment(seed, context) == offer.committed
        )
        vector = self.masked[self.target] - primitives.mask(seed, self.context, SIZE)
        for name in others:
            if name in self.helpers:
                seed = bytes.fromhex(self.sites[name]._state(self.release.name)["seeds"][0])
            else:
                public = self.offers[name].public
                seed = primitives.combine(
                    self.pairs[name], needed, lambda seed, its=public: primitives.key_pair(seed, context)[1] == its
                )
            private, _ = primitives.key_pair(seed, self.context)
            vector += signed_mask(private, name, self.target, offer.public, self.context, SIZE)
        return vector

    def _offers(self, names: Collection[str]) -> list[Offer]:
        return [self.offers[name] for name in sorted(names)]

    def _forged(self, helper: str, shown: Collection[str], survivors: Sequence[str]) -> Confirmation:
        """Return what a colluding site signs for the server: whatever some honest site was shown."""
        offers = offers_digest(self._offers(shown), self.context)
        message = Confirmation(helper, b"").signed(self.context, offers, survivors)
        return Confirmation(helper, self.sites[helper].identity.sign(message))


def _unless_refused(ask: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
    try:
        return ask(*arguments, **options)
    except FedMRError:
        return None
