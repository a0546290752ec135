"""Keys count only with the signature of the site they are for, by a certificate of the same federation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.secure.identity import Certified
from fedmr_med.secure.messages import Keys, Release, Roster
from fedmr_med.secure.participant import Participant
from tests.helpers.certificates import SERVER, Authority
from tests.helpers.errors import raises
from tests.helpers.secure import CHAIN, NAME, SESSION, begin, masked, opened

NAMES = ("berlin", "paris", "rome")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def sites(tmp_path: Path, authority: Authority) -> dict[str, Participant]:
    return {
        name: Participant(name, tmp_path / "state" / name, Certified(authority.kit(tmp_path / name, name)))
        for name in NAMES
    }


def offer(sites: dict[str, Participant], entries: list[Keys]) -> None:
    sites["berlin"].hold(NAME, np.zeros(1, np.uint64))
    sites["berlin"].offer(Release(CHAIN, SESSION, NAME), Roster.of(entries))


def test_sites_with_certificates_add_up(sites: dict[str, Participant]) -> None:
    ones = dict.fromkeys(sites, np.ones(4, np.uint64))
    assert opened(masked(begin(sites, ones), sites), sites).tolist() == [3] * 4


def test_a_key_that_the_server_put_in_place_of_a_sites_is_refused(sites: dict[str, Participant]) -> None:
    keys = [site.keys(CHAIN, SESSION) for site in sites.values()]
    with raises("secure.signature"):
        offer(sites, [*keys[:2], replace(keys[2], public=bytes(range(32)))])


def test_keys_of_another_session_do_not_count(sites: dict[str, Participant]) -> None:
    keys = [site.keys(CHAIN, "earlier") for site in sites.values()]
    with raises("secure.signature"):
        offer(sites, [sites["berlin"].keys(CHAIN, SESSION), *keys[1:]])


def test_an_offer_that_was_changed_on_the_way_is_refused(sites: dict[str, Participant]) -> None:
    secure = begin(sites, dict.fromkeys(sites, np.ones(2, np.uint64)))
    for site in sites.values():
        secure.take_offer(site.offer(secure.release, secure.roster))
    offers = [replace(o, committed=bytes(32)) if o.site == "rome" else o for o in secure.offered()]
    with raises("secure.signature"):
        sites["berlin"].mask(secure.release, secure.roster, offers)


@pytest.mark.parametrize(
    ("name", "role", "days", "key"),
    [
        ("paris", None, 10, "site"),
        ("madrid", "lead", 10, "role"),
        ("madrid", None, -5, "date"),
        ("madrid", "client", 10, None),
    ],
)
def test_who_counts_as_a_site(
    sites: dict[str, Participant],
    authority: Authority,
    tmp_path: Path,
    name: str,
    role: str | None,
    days: int,
    key: str | None,
) -> None:
    other = Certified(authority.kit(tmp_path / "other", name, role, days))
    check = sites["berlin"].identity.check
    if key is None:
        return check("madrid", other.certificate, b"message", other.sign(b"message"))
    with raises("secure.certificate", key):
        check("madrid", other.certificate, b"message", other.sign(b"message"))
    return None


def test_a_certificate_of_another_federation_is_refused(sites: dict[str, Participant], tmp_path: Path) -> None:
    other = Certified(Authority().kit(tmp_path / "other", "madrid"))
    for certificate in (other.certificate, b"nonsense"):
        with raises("secure.certificate", "issuer"):
            sites["berlin"].identity.check("madrid", certificate, b"message", other.sign(b"message"))


def test_the_servers_certificate_is_not_a_sites(
    sites: dict[str, Participant], authority: Authority, tmp_path: Path
) -> None:
    """FLARE gives it no role, as it gives none to a site's: it would count as one more site that colludes."""
    server = Certified(authority.kit(tmp_path / "server", SERVER))
    with raises("secure.certificate", "role"):
        sites["berlin"].identity.check(SERVER, server.certificate, b"message", server.sign(b"message"))


def test_a_kit_without_a_key_cannot_sign(tmp_path: Path) -> None:
    with raises("file.unreadable"):
        Certified(tmp_path)


@pytest.mark.parametrize("content", [None, "{}", '{"servers": []}', '{"servers": [{"name": "small"}]}', "no json"])
def test_a_kit_that_does_not_name_the_server_cannot_tell_it_from_a_site(
    authority: Authority, tmp_path: Path, content: str | None
) -> None:
    path = authority.kit(tmp_path / "kit", "berlin") / "fed_client.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with raises("file.unreadable"):
        Certified(tmp_path / "kit")
