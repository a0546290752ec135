"""A malicious server with fewer than a third of the sites opens no single vector, whatever it shows the others."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.secure.messages import colluding, threshold
from tests.helpers.errors import raises
from tests.helpers.malicious import MaliciousServer
from tests.helpers.secure import begin, confirmed, masked, participants


def split_offers(server: MaliciousServer) -> tuple[dict[str, list[str]], dict[str, list[str]]] | None:
    """Return what to show and to tell: the target few offers, and every site another set of survivors.

    Without a round in which sites confirm what they were shown, this gives the seed of the target's own mask, and the
    keys of all sites whose masks are on its vector.
    """
    names, honest, helpers = server.names, server.honest, server.helpers
    needed, spare = server.roster.threshold, len(names) - server.roster.threshold
    for few in range(len(honest)):
        near = honest[1 : 1 + few]
        seen = [server.target, *near, *helpers]
        missing = dict.fromkeys(near, needed - len(helpers))
        told = {server.target: sorted(seen)}
        for site in [name for name in honest[1:] if name not in near] + near:
            gone = sorted((name for name in near if name != site), key=lambda name: -missing[name])[:spare]
            missing |= {name: missing[name] - 1 for name in gone}
            told[site] = [name for name in names if name not in gone]
        if len(seen) >= needed and all(count <= 0 for count in missing.values()):
            return {name: seen if name == server.target else names for name in honest}, told
    return None


def one_side(server: MaliciousServer) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return what to show and to tell: few offers to the target, and to all others that those sites are gone."""
    names, honest, helpers = server.names, server.honest, server.helpers
    near = honest[1 : server.roster.threshold - len(helpers)]
    seen = sorted([server.target, *near, *helpers])
    shown = {name: seen if name == server.target else names for name in honest}
    left = [name for name in names if name not in near]
    return shown, {name: left for name in left if name in honest}


@pytest.mark.parametrize("count", [6, 7, 9, 10, 12])
def test_different_offers_and_survivors_for_different_sites_open_nothing(tmp_path: Path, count: int) -> None:
    """Before sites confirmed what they were shown, it took 1 colluding site of 6, 2 of 7, 1 of 9, and 2 of 10 or 12."""
    server = MaliciousServer(tmp_path, count, colluding(count))
    plan = split_offers(server)
    assert plan is not None
    server.attack(*plan)
    assert server.stolen(plan[0][server.target]) is None
    assert not server.opened


@pytest.mark.parametrize("count", [4, 6, 7, 9, 10])
def test_the_threshold_is_as_low_as_it_may_be(tmp_path: Path, count: int) -> None:
    """The attack is a real one: with one site more than is promised, t = (n + c) / 2, it opens the target's vector."""
    for helpers in (2 * threshold(count) - count - 1, 2 * threshold(count) - count):
        server = MaliciousServer(tmp_path / str(helpers), count, helpers)
        shown, told = one_side(server)
        server.attack(shown, told)
        stolen = server.stolen(shown[server.target])
        if helpers < 2 * threshold(count) - count:
            assert stolen is None
        else:
            assert stolen is not None
            assert stolen.tolist() == server.vectors[server.target].tolist()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(3, 9))
def test_whatever_sites_are_shown_all_shares_are_for_one_set(data: st.DataObject, count: int) -> None:
    """And nobody's two secrets are known, so no vector of an honest site is open."""
    helpers = data.draw(st.integers(0, colluding(count)), label="colluding")
    with TemporaryDirectory() as folder:
        server = MaliciousServer(Path(folder), count, helpers)
        views = data.draw(st.lists(_views(server), min_size=1, max_size=3), label="views")
        chosen = {name: data.draw(st.sampled_from(views), label=name) for name in server.honest}
        shown = {name: sorted({name, *view[0]}) for name, view in chosen.items()}
        told = {name: sorted({name, *view[1]} & set(shown[name])) for name, view in chosen.items()}
        server.attack(shown, told)
    assert len(server.opened) <= 1
    for name in server.honest:
        assert not (server.knows(server.own[name]) and server.knows(server.pairs[name]))
    assert server.stolen(shown[server.target]) is None


def _views(server: MaliciousServer) -> st.SearchStrategy[tuple[set[str], set[str]]]:
    """Return what a site may be shown: offers, and survivors; mostly as many as an honest site asks for."""
    some = st.sets(st.sampled_from(server.names), min_size=server.roster.threshold - 1)
    return st.tuples(st.one_of(some, st.just(set(server.names))), some)


@given(st.integers(3, 1000))
def test_the_threshold_is_that_of_the_malicious_case(count: int) -> None:
    assert 2 * threshold(count) > count + colluding(count)
    assert threshold(count) <= count
    assert colluding(count) < count / 3
    assert threshold(count) > colluding(count), "colluding sites alone restore no secret"


def test_shares_leave_with_enough_signatures_alone(tmp_path: Path) -> None:
    server = MaliciousServer(tmp_path, 6, 0)
    names, site = server.names, server.sites["site-00"]
    offers = list(server.offers.values())
    for name in names:
        server.sites[name].mask(server.release, server.roster, offers)
    with raises("secure.not-confirmed"):
        site.unmask(server.release, server.roster, names, [])
    signed = [server.sites[name].confirm(server.release, server.roster, names) for name in names]
    others = [server.sites[name].identity.sign(b"something else") for name in names]
    wrong = [type(item)(item.site, signature) for item, signature in zip(signed, others, strict=True)]
    for few in (signed[:3], [*signed[:3], *wrong[3:]], [signed[0]] * 6, signed[1:]):
        with raises("secure.inconsistent"):
            site.unmask(server.release, server.roster, names, few)
    assert site.unmask(server.release, server.roster, names, [*signed[:4], *wrong[4:]]).own.keys() == set(names)


def test_a_site_confirms_one_set_of_survivors(tmp_path: Path) -> None:
    sites = participants(tmp_path, 4)
    secure = masked(begin(sites, dict.fromkeys(sites, np.ones(3, np.uint64))), sites)
    names = list(sites)
    first = confirmed(secure, sites, names)
    assert confirmed(secure, sites, names) == first
    with raises("secure.confirmed-for-others"):
        sites[names[0]].confirm(secure.release, secure.roster, names[:3])
