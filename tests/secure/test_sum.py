"""Secure totals are the plain totals, whoever drops out; a single vector stays closed, whatever the server does."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedmr_med.arrays import Vector
from fedmr_med.errors import PolicyError, WireError
from fedmr_med.secure.messages import Release, Roster, Shares, threshold
from fedmr_med.secure.participant import Participant
from tests.helpers.errors import raises
from tests.helpers.secure import CHAIN, NAME, SESSION, begin, confirmed, masked, opened, participants


def vectors(names: list[str], size: int, seed: int = 0) -> dict[str, Vector]:
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 2**64, size, dtype=np.uint64) for name in names}


def plain(parts: Mapping[str, Vector], names: list[str]) -> list[int]:
    return [sum(int(parts[name][i]) for name in names) % 2**64 for i in range(len(next(iter(parts.values()))))]


def sum_with_dropouts(data: st.DataObject, count: int) -> None:
    order = data.draw(st.permutations(range(count)), label="who drops first")
    spare = count - threshold(count)
    offer, mask = (data.draw(st.integers(0, spare), label=phase) for phase in ("before offer", "before mask"))
    mask = min(mask, spare - offer)
    unmask = data.draw(st.integers(0, spare - offer - mask), label="before unmask")
    with TemporaryDirectory() as folder:
        sites = participants(Path(folder), count)
        names = [list(sites)[number] for number in order]
        parts = vectors(list(sites), 7, seed=count)
        secure = masked(begin(sites, parts), sites, before_offer=names[:offer], before_mask=names[offer : offer + mask])
        total = opened(secure, sites, before_unmask=names[offer + mask : offer + mask + unmask])
    assert total.tolist() == plain(parts, names[offer + mask :])


@settings(max_examples=12, deadline=None)
@given(st.data(), st.integers(3, 9))
def test_the_secure_total_is_the_plain_total_for_any_allowed_set_of_dropouts(data: st.DataObject, count: int) -> None:
    sum_with_dropouts(data, count)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.data(), st.integers(10, 50))
def test_the_same_holds_for_up_to_fifty_sites(data: st.DataObject, count: int) -> None:
    sum_with_dropouts(data, count)


@pytest.mark.slow
def test_fifty_sites_of_which_a_third_drop_out(tmp_path: Path) -> None:
    sites = participants(tmp_path, 50)
    parts = vectors(list(sites), 5)
    names = list(sites)
    secure = masked(begin(sites, parts), sites, before_offer=names[:5], before_mask=names[5:12])
    assert opened(secure, sites, before_unmask=names[12:16]).tolist() == plain(parts, names[12:])


@pytest.fixture
def four(tmp_path: Path) -> dict[str, Participant]:
    return participants(tmp_path, 4)


def test_what_the_server_gets_of_one_site_looks_random(tmp_path: Path) -> None:
    """A vector of zeros, the least random there is, gives bytes that no chi-square test tells from uniform ones."""
    sites = participants(tmp_path, 3)
    zeros = {name: np.zeros(50_000, np.uint64) for name in sites}
    secure = masked(begin(sites, zeros), sites)
    for vector in secure.vectors.values():
        counts = np.bincount(np.frombuffer(vector.tobytes(), np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
        assert stats.kstest(vector.astype(np.float64) / 2.0**64, "uniform").pvalue > 1e-4
    pair = [secure.vectors[name] for name in list(sites)[:2]]
    assert stats.kstest((pair[0] + pair[1]).astype(np.float64) / 2.0**64, "uniform").pvalue > 1e-4
    assert not opened(secure, sites).any()


def test_too_few_sites_open_nothing(tmp_path: Path) -> None:
    two = participants(tmp_path, 2)
    parts = vectors(list(two), 3)
    with raises("secure.too-few-sites", kind=WireError):
        begin(two, parts)
    roster = Roster.of([site.keys(CHAIN, SESSION) for site in two.values()])
    with raises("secure.too-few-sites", kind=PolicyError):
        two["site-000"].offer(Release(CHAIN, SESSION, NAME), roster)


def test_a_site_does_not_help_to_open_fewer_vectors_than_the_threshold(four: dict[str, Participant]) -> None:
    secure = masked(begin(four, vectors(list(four), 3)), four)
    with raises("secure.too-few-left", kind=PolicyError):
        four["site-000"].confirm(secure.release, secure.roster, ["site-000", "site-001"])


def test_a_site_does_not_mask_for_fewer_sites_than_the_threshold(four: dict[str, Participant]) -> None:
    """Fewer offers mean fewer masks: with the site's own alone, one seed would open its vector."""
    secure = begin(four, vectors(list(four), 3))
    offers = [site.offer(secure.release, secure.roster) for site in four.values()]
    site = four["site-000"]
    for few in (offers[:1], offers[:2]):
        with pytest.raises(PolicyError):
            site.mask(secure.release, secure.roster, few)
    site.mask(secure.release, secure.roster, offers[:3])


def test_a_site_masks_for_as_many_sites_as_it_asks_for(tmp_path: Path) -> None:
    sites = participants(tmp_path, 5)
    sites["site-000"].least = 5
    secure = begin(sites, vectors(list(sites), 3))
    offers = [site.offer(secure.release, secure.roster) for site in sites.values()]
    with pytest.raises(PolicyError):
        sites["site-000"].mask(secure.release, secure.roster, offers[:4])
    sites["site-000"].mask(secure.release, secure.roster, offers)


@pytest.mark.parametrize("offered", [(), (1, 2, 3), (0, 1, 2, 2), (0, 1, 2, 3, 3)])
def test_a_site_masks_with_one_offer_of_each_site_and_its_own(
    four: dict[str, Participant], offered: tuple[int, ...]
) -> None:
    secure = begin(four, vectors(list(four), 3))
    offers = [site.offer(secure.release, secure.roster) for site in four.values()]
    with pytest.raises(WireError):
        four["site-000"].mask(secure.release, secure.roster, [offers[number] for number in offered])


def test_the_server_takes_offers_of_the_agreed_form_alone(four: dict[str, Participant]) -> None:
    """What it passes on without a look would fail at every other site, and cost the release."""
    secure = begin(four, vectors(list(four), 3))
    offer = four["site-001"].offer(secure.release, secure.roster)
    first, own, *others = offer.sealed
    for change in (
        {"public": offer.public[1:]},
        {"public": offer.public + b"0"},
        {"committed": offer.committed[1:]},
        {"committed": offer.committed + b"0"},
        {"sealed": (first[1:], own, *others)},
        {"sealed": (first + b"0", own, *others)},
        {"sealed": (own, first, *others)},
        {"sealed": (first, first, *others)},
        {"sealed": (b"", own, *others)},
        {"sealed": (first, own, *others[1:])},
        {"sealed": (*offer.sealed, first)},
        {"sealed": ()},
        {"site": "site-999"},
    ):
        with pytest.raises(WireError):
            secure.take_offer(replace(offer, **change))
    secure.take_offer(offer)
    with pytest.raises(WireError):
        secure.take_offer(offer)


def test_the_server_takes_masked_vectors_of_the_agreed_form_alone(four: dict[str, Participant]) -> None:
    secure = begin(four, vectors(list(four), 3))
    *offering, silent = four.values()
    for site in offering:
        secure.take_offer(site.offer(secure.release, secure.roster))
    first = offering[0].mask(secure.release, secure.roster, secure.offered())
    with raises("wire.unasked", "masked"):
        secure.take_masked(replace(first, site=silent.site))
    for wrong in (first.vector[1:], first.vector.reshape(1, 3), first.vector.astype(np.int64)):
        with raises("wire.form", "masked"):
            secure.take_masked(replace(first, vector=wrong))
    secure.take_masked(first)
    with raises("wire.unasked", "masked"):
        secure.take_masked(first)


def test_the_server_takes_confirmations_and_shares_that_it_asked_for_alone(four: dict[str, Participant]) -> None:
    """Taken unseen, shares that lack a site would end the server instead of that one answer."""
    *staying, gone = four
    secure = masked(begin(four, vectors(list(four), 3)), four, before_mask=[gone])
    confirmations = confirmed(secure, four, secure.survivors())
    first = staying[0]
    shares = four[first].unmask(secure.release, secure.roster, secure.survivors(), confirmations)
    with raises("wire.unasked", "shares"):
        secure.take_shares(shares)
    for confirmation in confirmations:
        secure.take_confirmation(confirmation)
    for unasked in (confirmations[0], replace(confirmations[0], site=gone)):
        with raises("wire.unasked", "confirm"):
            secure.take_confirmation(unasked)
    fewer = {name: share for name, share in shares.own.items() if name != first}
    for change in (
        {"own": fewer},
        {"own": shares.own | shares.pairs},
        {"own": shares.own | {first: shares.own[first][1:]}},
        {"pairs": {}},
        {"pairs": shares.pairs | {first: shares.own[first]}},
        {"pairs": {gone: shares.pairs[gone] + b"0"}},
    ):
        with raises("secure.share"):
            secure.take_shares(replace(shares, **change))
    secure.take_shares(shares)
    with raises("wire.unasked", "shares"):
        secure.take_shares(shares)


def test_a_second_unmask_request_is_refused_for_the_same_and_for_other_sites(four: dict[str, Participant]) -> None:
    secure = masked(begin(four, vectors(list(four), 3)), four)
    names = list(four)
    site, confirmations = four[names[0]], confirmed(secure, four, names)
    site.unmask(secure.release, secure.roster, names, confirmations)
    with raises("secure.no-offer"):
        site.unmask(secure.release, secure.roster, names, confirmations)
    with raises("secure.no-offer"):
        site.unmask(secure.release, secure.roster, names[:3], confirmations[:3])
    with raises("secure.opened-for-others"):
        site.confirm(secure.release, secure.roster, names[:3])


def test_a_site_never_gives_both_secrets_of_another(four: dict[str, Participant]) -> None:
    secure = masked(begin(four, vectors(list(four), 3)), four)
    names = list(four)
    shares = four[names[0]].unmask(secure.release, secure.roster, names[:3], confirmed(secure, four, names[:3]))
    assert set(shares.own) == set(names[:3])
    assert set(shares.pairs) == {names[3]}


def test_a_late_vector_stays_closed(four: dict[str, Participant]) -> None:
    """The server has the late site's pair masks by then, but nobody gives it the seed of its own mask."""
    secure = begin(four, vectors(list(four), 3))
    late = "site-003"
    for site in four.values():
        secure.take_offer(site.offer(secure.release, secure.roster))
    offers = secure.offered()
    answers = {name: four[name].mask(secure.release, secure.roster, offers) for name in four}
    for name in list(four)[:3]:
        secure.take_masked(answers[name])
    survivors = secure.survivors()
    with raises("wire.late", "masked"):
        secure.take_masked(answers[late])
    opened(secure, four)
    for name in survivors:
        with raises("secure.opened-for-others"):
            four[name].confirm(secure.release, secure.roster, list(four))


def test_a_restarted_server_cannot_open_the_same_release_for_other_sites(four: dict[str, Participant]) -> None:
    """Two totals of which only one holds a site's vector would give that vector."""
    parts, names = vectors(list(four), 3), list(four)
    opened(masked(begin(four, parts), four), four)
    again = masked(begin(four, parts, session="restarted"), four, before_mask=names[3:])
    for name in names[:3]:
        with raises("secure.opened-for-others"):
            four[name].confirm(again.release, again.roster, names[:3])


def test_a_restarted_server_gets_the_same_total_of_the_same_sites_again(four: dict[str, Participant]) -> None:
    """Without it, a server that dies between opening a total and writing it down would never get any further."""
    parts = vectors(list(four), 3)
    first = masked(begin(four, parts), four)
    total = opened(first, four)
    again = masked(begin(four, parts, session="restarted"), four)
    assert opened(again, four).tolist() == total.tolist()
    for name, vector in first.vectors.items():
        assert not np.array_equal(vector, again.vectors[name]), "the masks are fresh"


def test_an_opened_release_keeps_its_vector(four: dict[str, Participant]) -> None:
    """Two totals of the same sites with two vectors of one of them would show by how much these differ."""
    parts = vectors(list(four), 3)
    total = opened(masked(begin(four, parts), four), four)
    others = parts | {"site-000": np.ones(3, np.uint64)}
    again = masked(begin(four, others, session="restarted"), four)
    assert opened(again, four).tolist() == total.tolist()


def test_the_vector_of_an_opened_release_goes_when_the_next_one_comes(four: dict[str, Participant]) -> None:
    opened(masked(begin(four, vectors(list(four), 3)), four), four)
    opened(masked(begin(four, vectors(list(four), 3), name="train-2"), four), four)
    again = begin(four, vectors(list(four), 3), session="restarted")
    for site in four.values():
        with raises("secure.opened-before"):
            site.offer(again.release, again.roster)


def test_a_release_that_was_not_opened_can_be_tried_again_after_a_restart(four: dict[str, Participant]) -> None:
    parts = vectors(list(four), 3)
    masked(begin(four, parts), four)
    again = begin(four, parts, session="restarted")
    assert opened(masked(again, four), four).tolist() == plain(parts, list(four))


def test_a_restarted_site_goes_on_from_its_disk(tmp_path: Path) -> None:
    """The simulator ends a process after every task; nothing that a sum needs is in memory."""
    parts = vectors([f"site-{n:03}" for n in range(3)], 3)
    secure = masked(begin(participants(tmp_path, 3), parts), participants(tmp_path, 3))
    assert opened(secure, participants(tmp_path, 3)).tolist() == plain(parts, list(parts))


def test_a_site_knows_its_own_key(four: dict[str, Participant]) -> None:
    secure = begin(four, vectors(list(four), 3))
    first, *others = secure.roster.entries
    swapped = Roster.of([replace(first, public=bytes(range(32))), *others])
    with raises("secure.not-own"):
        four[first.site].offer(secure.release, swapped)


def test_a_vector_that_was_masked_is_not_exchanged(four: dict[str, Participant]) -> None:
    """A site that is never asked to unmask does not know that others have opened the release.

    With noise in the vectors, a fresh one each time averaged it out of everybody's total: two of six sites took a new
    one in each of 40 openings, and the noise of the total went down from 1,096 to 907, for 1,000 promised.
    """
    parts, names = vectors(list(four), 3), list(four)
    first = masked(begin(four, parts), four)
    total = opened(first, four, before_unmask=names[3:])
    late = four[names[3]]
    for session in ("second", "third"):
        assert late.settled(NAME)
        assert not late.hold(NAME, np.ones(3, np.uint64))
        again = masked(begin(four, parts | {names[3]: np.ones(3, np.uint64)}, session=session), four)
        assert opened(again, four, before_unmask=names[3:]).tolist() == total.tolist()


def test_a_vector_that_was_never_masked_may_be_exchanged(four: dict[str, Participant]) -> None:
    secure = begin(four, vectors(list(four), 3))
    for site in four.values():
        site.offer(secure.release, secure.roster)
        assert not site.settled(NAME)
        assert site.hold(NAME, np.ones(3, np.uint64))


def test_masks_are_used_once(four: dict[str, Participant]) -> None:
    """Two vectors under one mask would give their difference."""
    secure = masked(begin(four, vectors(list(four), 3)), four)
    site, offers = four["site-000"], secure.offered()
    site.hold(NAME, np.ones(3, np.uint64))
    with raises("secure.masked-before"):
        site.mask(secure.release, secure.roster, offers)
    with raises("secure.in-use"):
        site.offer(secure.release, secure.roster)


def test_secrets_are_gone_once_they_were_used(four: dict[str, Participant]) -> None:
    secure = masked(begin(four, vectors(list(four), 3)), four)
    files = {path.name: path.stat().st_mode & 0o077 for path in four["site-000"].folder.iterdir()}
    assert {name for name in files if not name.startswith("lock")} == {f"{NAME}.npy", f"{NAME}.json", f"{SESSION}.key"}
    assert not any(files.values()), "others can read a secret"
    opened(secure, four)
    left = {path.name for path in four["site-000"].folder.iterdir()}
    assert left == {"lock", f"{SESSION}.key", "opened.jsonl", f"{NAME}.npy"}


def test_one_wrong_share_is_found_and_left_out(tmp_path: Path) -> None:
    sites = participants(tmp_path, 6)
    parts = vectors(list(sites), 3)
    secure = masked(begin(sites, parts), sites)
    survivors = secure.survivors()
    confirmations = confirmed(secure, sites, survivors)
    for confirmation in confirmations:
        secure.take_confirmation(confirmation)
    for number, name in enumerate(survivors):
        shares = sites[name].unmask(secure.release, secure.roster, survivors, confirmations)
        secure.take_shares(Shares(name, dict.fromkeys(shares.own, bytes(16)), {}) if number == 1 else shares)
    assert secure.total().tolist() == plain(parts, list(sites))


def test_a_record_that_was_changed_opens_nothing(four: dict[str, Participant]) -> None:
    for name in (NAME, "train-2"):
        opened(masked(begin(four, vectors(list(four), 3), name=name), four), four)
    record = four["site-000"].folder / "opened.jsonl"
    record.write_text(record.read_text().replace(NAME, "train-9"))
    with raises("record.changed"):
        begin(four, vectors(list(four), 3), name="train-3")


def test_an_old_copy_of_a_sites_folder_cannot_answer_for_a_release_again(four: dict[str, Participant]) -> None:
    """A backup from before the release has no secrets of it, and one from before its masking no shares."""
    secure = begin(four, vectors(list(four), 3))
    folder = four["site-000"].folder
    backup = folder.with_name("backup")
    shutil.copytree(folder, backup)
    masked(secure, four)
    survivors = secure.survivors()
    four["site-000"].unmask(secure.release, secure.roster, survivors, confirmed(secure, four, survivors))
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    with raises("secure.no-offer"):
        four["site-000"].confirm(secure.release, secure.roster, survivors[:3])
