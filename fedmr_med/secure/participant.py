"""A site's side of secure sums. What it must not do twice is on its disk before it answers.

The site enforces the rules that keep its vector closed; it does not count on the server:

- enough sites, all of them with keys signed by themselves, or nothing is offered;
- one masked vector per set of masks, and one vector per release once it was masked;
- shares leave only if enough sites have signed that they were shown the same offers and the same survivors;
- each release of a chain is opened for one set of sites and one vector of this site, in whatever session: never the
  shares of both secrets of a site, and never for two different sets of sites. After a restart of either end the same
  may be opened again, with fresh masks: the total is the one that the server had before;
- it masks for one cohort in all releases, see :mod:`fedmr_med.secure.cohort`; without one, for one roster per release.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedmr_med.arrays import Vector
from fedmr_med.errors import PolicyError, WireError
from fedmr_med.files import atomic_writer, journal, own_turn, write_text
from fedmr_med.schema import NAME_PATTERN
from fedmr_med.secure import FEWEST, RESTORE, primitives
from fedmr_med.secure.cohort import Cohort
from fedmr_med.secure.identity import Identity
from fedmr_med.secure.messages import Confirmation, Keys, Masked, Offer, Part, Release, Roster, Shares, offers_digest
from fedmr_med.secure.primitives import NONCE, SEED
from fedmr_med.secure.summing import signed_mask

OPENED = "opened.jsonl"


class Participant:
    """One site's part in the secure sums of one chain.

    Args:
        folder: where it keeps keys, shares and what it has answered, for this chain alone.
        least: sites without which it opens nothing; three at least.
        cohort: the sites whose totals it helps to open, all of them and no others; None takes any for each release, as
            where noise protects each site anyway.
    """

    def __init__(
        self, site: str, folder: Path, identity: Identity, *, least: int = FEWEST, cohort: Cohort | None = None
    ):
        self.site, self.folder, self.identity, self.cohort = site, folder, identity, cohort
        self.least = max(FEWEST, least)

    def hold(self, name: str, vector: Vector, *, kept: str = "") -> bool:
        """Keep a vector for the release ``name`` until that of the next release comes; vectors of opened ones go.

        Those of the kind of release ``kept`` go with the next one of their kind: the site may have to take them out.

        An older one of that name is replaced, unless it was masked: other sites may have opened the release since, and
        another vector beside it would show the difference of both. Then False is returned.
        """
        with own_turn(self.folder / "lock"):
            opened = self._opened()
            gone = (other for other in opened if other != name and (_kind(other) != kept or _kind(name) == kept))
            _forget(self._file(other, "npy") for other in gone)
            if name in opened or self._masked_for(name) is not None:
                return False
            with atomic_writer(self._file(name, "npy")) as stream:
                np.save(stream, vector, allow_pickle=False)
        return True

    def keys(self, chain: str, session: str) -> Keys:
        """Return a signed key for a session; asked again, the same."""
        path = self._file(session, "key")
        with own_turn(self.folder / "lock"):
            if not path.exists():
                _forget(self.folder.glob("*.key"))
                _write(path, {"seed": os.urandom(SEED).hex()})
            _, public = self._session_key(session)
        unsigned = Keys(self.site, public, self.identity.certificate, b"")
        return replace(unsigned, signature=self.identity.sign(unsigned.signed(chain, session)))

    def offer(self, release: Release, roster: Roster) -> Offer:
        """Make fresh secrets for a release and share them among the roster.

        Raises:
            PolicyError: too few sites, or the release was opened before and its vector is gone, or it was masked for
                another roster.
            WireError: the roster is not what the sites signed, or this site has no vector for the release.
        """
        self._check_roster(release, roster)
        if self.cohort is not None:
            self.cohort.check(roster.names)
        context, number = roster.context(release), roster.names.index(self.site)
        with own_turn(self.folder / "lock"):
            if not self._file(release.name, "npy").exists():
                if release.name in self._opened():
                    raise PolicyError(
                        f"{release.name} was opened before; it is not opened again", code="secure.opened-before"
                    )
                raise WireError(f"there is no vector for {release.name}", code="secure.no-vector")
            state, before = self._state(release.name), self._masked_for(release.name)
            if state.get("context") == context.hex() and state["masked"]:
                raise PolicyError(f"the masks of {release.name} are in use", code="secure.in-use")
            if self.cohort is None and before is not None and before != roster.names:
                # The thresholds of two rosters do not add up to more than all sites: both totals could be opened.
                raise PolicyError(
                    f"{release.name} was masked for {', '.join(before)}; it is not masked for other sites",
                    code="secure.masked-for-others",
                )
            seeds = [os.urandom(SEED) for _ in range(2)]
            _, public = primitives.key_pair(seeds[0], context)
            parts = [primitives.split(seed, roster.threshold, len(roster.entries)) for seed in seeds]
            private, _ = self._session_key(release.session)
            sealed = [
                b""
                if entry.site == self.site
                else primitives.seal(
                    primitives.agree(private, entry.public),
                    _route(context, self.site, entry.site),
                    os.urandom(NONCE),
                    parts[0][position] + parts[1][position],
                )
                for position, entry in enumerate(roster.entries)
            ]
            unsigned = Offer(self.site, public, primitives.commitment(seeds[1], context), tuple(sealed), b"")
            state = {
                "context": context.hex(),
                "masked": False,
                "masked_for": before,
                "seeds": [seed.hex() for seed in seeds],
                "shares": {self.site: [part[number].hex() for part in parts]},
            }
            _write(self._file(release.name, "json"), state)
        return replace(unsigned, signature=self.identity.sign(unsigned.signed(context)))

    def mask(self, release: Release, roster: Roster, offers: Sequence[Offer]) -> Masked:
        """Return the masked vector, once.

        Raises:
            PolicyError: too few sites, another cohort, or it was asked before.
            WireError: an offer is not what its site signed.
        """
        self._check_roster(release, roster)
        context = roster.context(release)
        made = {offer.site: offer for offer in offers}
        if len(made) != len(offers) or not made.keys() <= set(roster.names) or self.site not in made:
            raise WireError("the offers are not those of the roster", code="secure.other-offers")
        self._check_number(len(made), roster)
        for entry in roster.entries:
            if entry.site in made and entry.site != self.site:
                offer = made[entry.site]
                self.identity.check(entry.site, entry.certificate, offer.signed(context), offer.signature)
        with own_turn(self.folder / "lock"):
            state = self._current(release, context)
            if state["masked"]:
                raise PolicyError(f"{release.name} was masked before", code="secure.masked-before")
            seed, own = (bytes.fromhex(text) for text in state["seeds"])
            private, public = primitives.key_pair(seed, context)
            if made[self.site].public != public:
                raise WireError("the server sends another offer as this site's own", code="secure.not-own")
            state["shares"] |= self._received(release, roster, made, context)
            state["offers"] = offers_digest(offers, context).hex()
            state["masked"], state["masked_for"] = True, roster.names
            with self._file(release.name, "npy").open("rb") as stream:
                total = np.load(stream, allow_pickle=False).astype(np.uint64)
            total += primitives.mask(own, context, len(total))
            for name, offer in made.items():
                if name != self.site:
                    total += signed_mask(private, self.site, name, offer.public, context, len(total))
            if self.cohort is not None:
                # Before the vector leaves: one that is masked for two cohorts could be in two totals.
                self.cohort.pin(roster.names, chain=release.chain, release=release.name)
            _write(self._file(release.name, "json"), state)
        return Masked(self.site, total)

    def confirm(self, release: Release, roster: Roster, survivors: Sequence[str]) -> Confirmation:
        """Sign which offers this site masked with and whose vectors arrived: one set of them, whoever asks.

        Raises:
            PolicyError: too few vectors arrived or not those of the whole cohort, or this site confirmed or opened the
                release for other sites.
            WireError: the survivors are not among those who made an offer.
        """
        self._check_roster(release, roster)
        arrived, context = set(survivors), roster.context(release)
        self._check_number(len(arrived), roster)
        with own_turn(self.folder / "lock"):
            opened = self._opened().get(release.name)
            if opened is not None and arrived != set(opened["sites"]):
                raise PolicyError(
                    f"{release.name} was opened before, for other sites; it is not opened again",
                    code="secure.opened-for-others",
                )
            state = self._current(release, context)
            if not state["masked"] or not arrived <= state["shares"].keys() or self.site not in arrived:
                raise WireError("the survivors are not sites whose offers were masked with", code="secure.survivors")
            if arrived != set(state.get("confirmed", arrived)):
                raise PolicyError(f"{release.name} was confirmed for other sites", code="secure.confirmed-for-others")
            if self.cohort is not None:
                if missing := sorted(set(roster.names) - arrived):
                    raise PolicyError(
                        f"the vectors of {', '.join(missing)} did not arrive; a total is over the whole cohort",
                        code="secure.not-whole",
                    )
                self.cohort.check(arrived)
            _write(self._file(release.name, "json"), state | {"confirmed": sorted(arrived)})
        unsigned = Confirmation(self.site, b"")
        message = unsigned.signed(context, bytes.fromhex(state["offers"]), arrived)
        return replace(unsigned, signature=self.identity.sign(message))

    def unmask(
        self, release: Release, roster: Roster, survivors: Sequence[str], confirmations: Sequence[Confirmation]
    ) -> Shares:
        """Return this site's shares, once per session, if enough sites confirm what it has confirmed itself.

        What it opens is written down before.

        Raises:
            PolicyError: too few survivors were shown the same offers and the same survivors.
            WireError: this site has not confirmed these survivors.
        """
        self._check_roster(release, roster)
        arrived, context = set(survivors), roster.context(release)
        with own_turn(self.folder / "lock"):
            state = self._current(release, context)
            if arrived != set(state.get("confirmed", ())):
                raise WireError("this site has not confirmed these survivors", code="secure.not-confirmed")
            agreeing = self._agreeing(roster, context, bytes.fromhex(state["offers"]), arrived, confirmations)
            if self.site not in agreeing or len(agreeing) < roster.threshold:
                raise PolicyError(
                    f"{len(agreeing)} sites, this one among them or not, were shown the same offers and survivors; "
                    f"{roster.threshold} are needed",
                    code="secure.inconsistent",
                )
            shares = {site: [bytes.fromhex(text) for text in texts] for site, texts in state["shares"].items()}
            entry = {
                "release": release.name,
                "session": release.session,
                "sites": sorted(arrived),
                "roster": roster.names,
            }
            journal.append(self.folder / OPENED, entry)
            _forget([self._file(release.name, "json")])
        own = {site: parts[1] for site, parts in shares.items() if site in arrived}
        return Shares(self.site, own, {site: parts[0] for site, parts in shares.items() if site not in arrived})

    def part(self, release: Release, rest: Sequence[str]) -> Part:
        """Return what this site takes out of the total of an opened release when it leaves, if a person has said so.

        Args:
            rest: whose vectors stay in the total.

        Raises:
            PolicyError: the release was not opened with this site in it, too few others stay, or its vector is gone.
        """
        with own_turn(self.folder / "lock"):
            opened = self._opened().get(release.name)
            if opened is None or not {*rest, self.site} <= set(opened["sites"]) or self.site in rest:
                raise PolicyError(f"{release.name} has no total that this site could leave", code="secure.no-total")
            if len(set(rest)) < self.least:
                raise PolicyError(
                    f"{len(set(rest))} sites would be left in the total, {self.least} are needed",
                    code="secure.too-few-left",
                )
            path = self._file(release.name, "npy")
            if not path.exists():
                raise PolicyError(f"the vector of {release.name} is gone", code="secure.no-vector")
            with path.open("rb") as stream:
                vector = np.load(stream, allow_pickle=False).astype(np.uint64)
        return Part(self.site, np.negative(vector))

    def settled(self, name: str) -> bool:
        """Whether this site's vector for the release ``name`` of the chain has left, and is no other any more.

        Raises:
            PolicyError: the record of it was changed.
        """
        return name in self._opened() or self._masked_for(name) is not None

    def _opened(self) -> dict[str, dict[str, Any]]:
        """Return the record of each opened release of the chain: the sites of the total, and the roster."""
        return {entry["release"]: entry for entry in journal.trusted(self.folder / OPENED, RESTORE)}

    def _check_roster(self, release: Release, roster: Roster) -> None:
        if self.site not in roster.names or len(roster.entries) < self.least:
            raise PolicyError(
                f"{len(roster.entries)} sites take part, {self.least} are needed, this one included",
                code="secure.too-few-sites",
            )
        for entry in roster.entries:
            message = entry.signed(release.chain, release.session)
            self.identity.check(entry.site, entry.certificate, message, entry.signature)
            if entry.site == self.site and entry.public != self.keys(release.chain, release.session).public:
                raise WireError("the server sends another key as this site's own", code="secure.not-own")

    def _check_number(self, number: int, roster: Roster) -> None:
        needed = max(roster.threshold, self.least)
        if number < needed:
            raise PolicyError(
                f"{number} of {len(roster.entries)} sites are left, and {needed} are needed", code="secure.too-few-left"
            )

    def _agreeing(
        self,
        roster: Roster,
        context: bytes,
        offers: bytes,
        arrived: set[str],
        confirmations: Sequence[Confirmation],
    ) -> set[str]:
        """Return the survivors that have signed for the same offers and survivors; signatures of others do not count.

        One bad signature does not keep the others from opening, so one site alone cannot.
        """
        certificates = {entry.site: entry.certificate for entry in roster.entries if entry.site in arrived}
        agreeing = set()
        for confirmation in confirmations:
            site = confirmation.site
            if site not in certificates:
                continue
            message = confirmation.signed(context, offers, arrived)
            try:
                self.identity.check(site, certificates[site], message, confirmation.signature)
            except WireError:
                continue
            agreeing.add(site)
        return agreeing

    def _received(
        self, release: Release, roster: Roster, made: Mapping[str, Offer], context: bytes
    ) -> dict[str, list[str]]:
        """Decrypt the shares for this site."""
        (private, _), number = self._session_key(release.session), roster.names.index(self.site)
        received = {}
        for entry in roster.entries:
            if entry.site == self.site or entry.site not in made:
                continue
            secret = primitives.agree(private, entry.public)
            route = _route(context, entry.site, self.site)
            content = primitives.unseal(secret, route, made[entry.site].sealed[number])
            received[entry.site] = [content[:SEED].hex(), content[SEED:].hex()]
        return received

    def _session_key(self, session: str) -> tuple[X25519PrivateKey, bytes]:
        path = self._file(session, "key")
        if not path.exists():
            raise WireError("this site has no key for the session", code="secure.no-key")
        return primitives.key_pair(bytes.fromhex(_read(path)["seed"]), session.encode())

    def _current(self, release: Release, context: bytes) -> dict[str, Any]:
        state = self._state(release.name)
        if state.get("context") != context.hex():
            raise WireError(f"this site has made no offer for {release.name} in this session", code="secure.no-offer")
        return state

    def _masked_for(self, name: str) -> tuple[str, ...] | None:
        """Return the roster that this site has masked its vector for, in whatever session; None before it did."""
        opened, masked_for = self._opened(), self._state(name).get("masked_for")
        if masked_for is None and name in opened:
            masked_for = opened[name]["roster"]
        return None if masked_for is None else tuple(masked_for)

    def _state(self, name: str) -> dict[str, Any]:
        path = self._file(name, "json")
        return _read(path) if path.exists() else {}

    def _file(self, name: str, kind: str) -> Path:
        if not re.fullmatch(NAME_PATTERN, name):
            raise WireError("a release or session is not a name", code="wire.form")
        return self.folder / f"{name}.{kind}"


def _kind(release: str) -> str:
    return release.partition("-")[0]


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content))


def _forget(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


def _route(context: bytes, sender: str, receiver: str) -> bytes:
    return primitives.digest(context, sender.encode(), receiver.encode())
