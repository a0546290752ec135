"""A secure sum in one process, with sites that drop out where a test wants it."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fedmr_med.arrays import Vector
from fedmr_med.secure.identity import Identity, Unsigned
from fedmr_med.secure.messages import Confirmation, Release, Roster
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import SecureSum

CHAIN, SESSION, NAME = "chain", "session", "train-1"


def participants(folder: Path, count: int, identities: Mapping[str, Identity] | None = None) -> dict[str, Participant]:
    names = [f"site-{number:03}" for number in range(count)]
    return {name: Participant(name, folder / name, (identities or {}).get(name, Unsigned())) for name in names}


def begin(
    sites: Mapping[str, Participant], vectors: Mapping[str, Vector], name: str = NAME, session: str = SESSION
) -> SecureSum:
    """Return a sum for which every site holds its vector."""
    for site, participant in sites.items():
        participant.hold(name, vectors[site])
    roster = Roster.of([participant.keys(CHAIN, session) for participant in sites.values()])
    return SecureSum(Release(CHAIN, session, name), roster, len(next(iter(vectors.values()))))


def masked(
    secure: SecureSum,
    sites: Mapping[str, Participant],
    *,
    before_offer: Collection[str] = (),
    before_mask: Collection[str] = (),
) -> SecureSum:
    """Go on until the masked vectors are in."""
    for name in secure.roster.names:
        if name not in before_offer:
            secure.take_offer(sites[name].offer(secure.release, secure.roster))
    offers = secure.offered()
    for offer in offers:
        if offer.site not in before_mask:
            secure.take_masked(sites[offer.site].mask(secure.release, secure.roster, offers))
    return secure


def confirmed(secure: SecureSum, sites: Mapping[str, Participant], survivors: Sequence[str]) -> list[Confirmation]:
    """Return the survivors' signatures."""
    return [sites[name].confirm(secure.release, secure.roster, survivors) for name in survivors]


def opened(secure: SecureSum, sites: Mapping[str, Participant], *, before_unmask: Collection[str] = ()) -> Vector:
    """Go on to the total."""
    survivors = secure.survivors()
    for confirmation in confirmed(secure, sites, survivors):
        secure.take_confirmation(confirmation)
    for name in survivors:
        if name not in before_unmask:
            secure.take_shares(sites[name].unmask(secure.release, secure.roster, survivors, secure.confirmations()))
    return secure.total()
