"""What passes between server and sites for a secure sum: five questions, five answers.

keys:    which session                     -> a public key, signed
offer:   the roster, all of these keys     -> a key and a commitment for this release, and encrypted shares
mask:    the offers of those who answered  -> the masked vector
confirm: whose vectors arrived             -> a signature over them and over the offers that the site was shown
unmask:  the signatures of the others      -> shares: of the self-masks of these, of the keys of the others

A sixth question comes long after, to a site that leaves the chain, if ever:

leave:   whose vectors stay in the total   -> the site's own vector, negated
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedmr_med.arrays import Vector
from fedmr_med.errors import WireError
from fedmr_med.secure import FEWEST
from fedmr_med.secure.primitives import digest

MOST_SITES = 1000
"""Sites of a sum at most; :mod:`fedmr_med.statistics.fields` counts on it."""


def colluding(sites: int) -> int:
    """Return how many of ``sites`` may collude with a malicious server: fewer than a third of them."""
    return (sites - 1) // 3


def threshold(sites: int) -> int:
    """Return how many of ``sites`` must take part to the end, and how many shares give a secret.

    The smallest t > (n + c) / 2, c being :func:`colluding`. A site confirms one set of survivors, the c that collude as
    many as they like: two sets with t signatures each would need 2 t <= (n - c) + 2 c.
    """
    return max(FEWEST, (sites + colluding(sites)) // 2 + 1)


@dataclass(frozen=True)
class Release:
    """Which sum this is about.

    Attributes:
        chain: the chain.
        session: id of this run of the job, that its sites sign.
        name: of the release in its chain, such as ``train-3``; it is opened once, whatever the session.
    """

    chain: str
    session: str
    name: str

    @property
    def label(self) -> bytes:
        """What keys and signatures are bound to."""
        return digest(*(part.encode() for part in (self.chain, self.session, self.name)))


@dataclass(frozen=True)
class Keys:
    """A site's key for a session, with which others encrypt shares for it."""

    site: str
    public: bytes
    certificate: bytes
    signature: bytes

    def signed(self, chain: str, session: str) -> bytes:
        """Return what the signature covers."""
        return digest(b"keys", chain.encode(), session.encode(), self.site.encode(), self.public)


@dataclass(frozen=True)
class Roster:
    """The sites of a sum, in the order of their names."""

    entries: tuple[Keys, ...]

    @classmethod
    def of(cls, entries: Sequence[Keys]) -> "Roster":
        """Put entries in order.

        Raises:
            WireError: a name or a key comes twice, or there are too many.
        """
        ordered = tuple(sorted(entries, key=lambda entry: entry.site))
        if len({entry.site for entry in ordered}) < len(ordered) or len({e.public for e in ordered}) < len(ordered):
            raise WireError("the roster has a site or a key twice", code="secure.roster")
        if len(ordered) > MOST_SITES:
            raise WireError(f"the roster has more than {MOST_SITES} sites", code="secure.roster")
        return cls(ordered)

    @property
    def names(self) -> tuple[str, ...]:
        """The sites."""
        return tuple(entry.site for entry in self.entries)

    @property
    def threshold(self) -> int:
        """How many of them are needed."""
        return threshold(len(self.entries))

    def context(self, release: Release) -> bytes:
        """Return what all keys of a release are bound to: who sees another roster cannot take part in the same sum."""
        return digest(b"context", release.label, *(digest(e.site.encode(), e.public) for e in self.entries))


@dataclass(frozen=True)
class Offer:
    """What a site gives before it masks.

    Attributes:
        site: its name.
        public: its key for the masks of this release.
        committed: commitment to the seed of its own mask.
        sealed: for each site of the roster, in its order, the shares of both seeds, encrypted; empty for itself.
        signature: by the site.
    """

    site: str
    public: bytes
    committed: bytes
    sealed: tuple[bytes, ...]
    signature: bytes

    def signed(self, context: bytes) -> bytes:
        """Return what the signature covers."""
        return digest(b"offer", context, self.site.encode(), self.public, self.committed, *self.sealed)


@dataclass(frozen=True)
class Masked:
    """A site's masked vector: random to whoever cannot take the masks off."""

    site: str
    vector: Vector


@dataclass(frozen=True)
class Part:
    """What a site takes out of a total when it leaves the chain: its vector, negated, without any mask."""

    site: str
    vector: Vector


def offers_digest(offers: Sequence[Offer], context: bytes) -> bytes:
    """Return what stands for the offers that a site was shown, in whatever order."""
    ordered = sorted(offers, key=lambda offer: offer.site)
    return digest(b"offers", context, *(offer.signed(context) for offer in ordered))


@dataclass(frozen=True)
class Confirmation:
    """A site's word that it masked with certain offers, and helps to open the total of certain sites alone."""

    site: str
    signature: bytes

    def signed(self, context: bytes, offers: bytes, survivors: Collection[str]) -> bytes:
        """Return what the signature covers: context, :func:`offers_digest`, and whose vectors arrived."""
        names = [name.encode() for name in sorted(survivors)]
        return digest(b"confirm", context, self.site.encode(), offers, *names)


@dataclass(frozen=True)
class Shares:
    """A site's answer to ``unmask``.

    Attributes:
        site: its name.
        own: its share of the self-mask's seed of each site whose vector arrived.
        pairs: its share of the key's seed of each site whose vector did not.
    """

    site: str
    own: Mapping[str, bytes]
    pairs: Mapping[str, bytes]
