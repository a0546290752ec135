"""All totals that a site helps to open are over the same sites, in all chains, until a person accepts others."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.arrays import Vector
from fedmr_med.errors import FedMRError, PolicyError
from fedmr_med.secure import FEWEST
from fedmr_med.secure.cohort import Cohort
from fedmr_med.secure.identity import Unsigned
from fedmr_med.secure.messages import Confirmation, Release, Roster, colluding
from fedmr_med.secure.participant import Participant
from tests.helpers.errors import raises
from tests.helpers.secure import begin, confirmed, masked, opened, participants


@pytest.fixture
def five(tmp_path: Path) -> dict[str, Participant]:
    sites = participants(tmp_path, 5)
    for name, site in sites.items():
        site.cohort = Cohort(tmp_path / name / "cohort.jsonl")
    return sites


def ones(sites: Mapping[str, Participant]) -> dict[str, Vector]:
    return dict.fromkeys(sites, np.ones(2, np.uint64))


def total(sites: Mapping[str, Participant], which: str, name: str) -> Vector:
    """Open a total over the sites with these numbers, in a session of its own."""
    some = {f"site-00{number}": sites[f"site-00{number}"] for number in which}
    return opened(masked(begin(some, ones(some), name=name, session=name), some), some)


def test_three_totals_over_cohorts_that_the_server_chooses_do_not_give_one_sites_vector(
    five: dict[str, Participant],
) -> None:
    """T1 + T2 - T3 = 2 x1: no two of them differ by fewer than three sites.

    Before, this read bcn's class counts: 40 46 39 26 29 17 17 22, and its class sums within 5e-7.
    """
    assert total(five, "012", "head-0").tolist() == [3, 3]
    with raises("secure.other-cohort"):
        total(five, "034", "head-1")
    with raises("secure.other-cohort"):
        total(five, "1234", "head-2")
    assert total(five, "012", "head-3").tolist() == [3, 3], "the same cohort goes on"


def test_a_total_lacks_nobody_of_its_roster(five: dict[str, Participant]) -> None:
    secure = masked(begin(five, ones(five)), five, before_mask=["site-004"])
    with pytest.raises(PolicyError, match="site-004") as caught:
        confirmed(secure, five, secure.survivors())
    assert caught.value.code == "secure.not-whole"
    assert total(five, "01234", "train-1").tolist() == [5, 5]


def test_a_site_lost_after_its_vector_arrived_is_in_the_total(five: dict[str, Participant]) -> None:
    secure = masked(begin(five, ones(five)), five)
    assert opened(secure, five, before_unmask=["site-004"]).tolist() == [5, 5]


def test_a_vector_is_masked_for_one_cohort_alone(five: dict[str, Participant]) -> None:
    """Two totals that are asked for side by side: nine of ten sites need fewer signatures than ten do.

    With three of ten colluding, seven sites sign for ten, of which four are honest, and six for nine.
    """
    begun = masked(begin(five, ones(five), name="train-1"), five)
    four = {name: site for name, site in five.items() if name != "site-004"}
    with raises("secure.other-cohort"):
        masked(begin(four, ones(four), name="train-2"), four)
    assert opened(begun, five).tolist() == [5, 5]


def test_what_is_offered_to_two_cohorts_is_masked_for_the_first(five: dict[str, Participant]) -> None:
    four = {name: site for name, site in five.items() if name != "site-004"}
    first = begin(five, ones(five), name="train-1")
    second = begin(four, ones(four), name="train-2")
    offers = {
        secure.release.name: [five[name].offer(secure.release, secure.roster) for name in secure.roster.names]
        for secure in (first, second)
    }
    five["site-000"].mask(first.release, first.roster, offers["train-1"])
    with raises("secure.other-cohort"):
        five["site-000"].mask(second.release, second.roster, offers["train-2"])


def test_without_a_cohort_a_release_is_masked_for_one_roster(tmp_path: Path) -> None:
    """Where noise protects every site, the same noise is in both totals of a release: their difference has less."""
    sites = participants(tmp_path, 5)
    four = {name: site for name, site in sites.items() if name != "site-004"}
    opened(masked(begin(sites, ones(sites)), sites), sites)
    with raises("secure.masked-for-others"):
        masked(begin(four, ones(four), session="second"), four)
    masked(begin(sites, ones(sites), name="train-2", session="third"), sites)
    with raises("secure.masked-for-others"):
        masked(begin(four, ones(four), name="train-2", session="fourth"), four)
    again = masked(begin(sites, ones(sites), name="train-2", session="fifth"), sites)
    assert opened(again, sites).tolist() == [5, 5]
    assert total(sites, "0123", "train-3").tolist() == [4, 4], "another release may be over other sites"


def test_a_person_accepts_another_cohort(five: dict[str, Participant]) -> None:
    total(five, "01234", "train-1")
    four = [f"site-00{number}" for number in range(4)]
    for name in four:
        cohort = five[name].cohort
        assert cohort is not None
        cohort.accept(four, by="steward")
        assert cohort.pinned() == set(four)
    assert total(five, "0123", "train-2").tolist() == [4, 4]
    with raises("secure.other-cohort"):
        total(five, "01234", "train-3")


def test_two_sites_are_no_cohort(tmp_path: Path) -> None:
    with raises("secure.too-few-sites"):
        Cohort(tmp_path / "cohort.jsonl").accept(["a", "b", "b"], by="steward")


def test_a_record_that_was_changed_opens_nothing(five: dict[str, Participant]) -> None:
    total(five, "01234", "train-1")
    cohort = five["site-000"].cohort
    assert cohort is not None
    cohort.accept([f"site-00{number}" for number in range(4)], by="steward")
    cohort.record.write_text(cohort.record.read_text().replace("train-1", "train-2"))
    with raises("record.changed"):
        total(five, "0123", "train-3")


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(4, 10))
def test_no_honest_site_is_in_two_totals_over_different_sites(data: st.DataObject, count: int) -> None:
    """Whatever rosters a malicious server asks for side by side, in chains of their own, and in whatever order."""
    helpers = [f"site-{number:03}" for number in range(data.draw(st.integers(0, colluding(count)), label="colluding"))]
    names = [f"site-{number:03}" for number in range(count)]
    some = st.sets(st.sampled_from(names), min_size=FEWEST).map(lambda chosen: sorted({*chosen, *helpers}))
    rosters = data.draw(st.lists(some, min_size=2, max_size=3, unique_by=tuple), label="rosters")
    with TemporaryDirectory() as folder:
        asked = [
            MaliciousTotal(Path(folder), f"chain-{number}", names, helpers) for number, names in enumerate(rosters)
        ]
        for step in (MaliciousTotal.mask, MaliciousTotal.confirm, MaliciousTotal.unmask):
            turns = [(total, name) for total in asked for name in total.sites]
            for total, name in data.draw(st.permutations(turns), label=step.__name__):
                with suppress(FedMRError):
                    step(total, name)
    opened = [set(total.sites) - set(helpers) for total in asked if total.is_open()]
    assert sum(map(len, opened)) == len(set().union(*opened))


class MaliciousTotal:
    """One total over chosen sites, of which some collude: these take any cohort."""

    def __init__(self, folder: Path, chain: str, names: Sequence[str], helpers: Sequence[str]):
        self.sites = {
            name: Participant(
                name,
                folder / name / chain,
                Unsigned(),
                cohort=None if name in helpers else Cohort(folder / name / "cohort.jsonl"),
            )
            for name in names
        }
        self.release = Release(chain, "session", "train-1")
        for site in self.sites.values():
            site.hold(self.release.name, np.ones(2, np.uint64))
        self.roster = Roster.of([site.keys(chain, "session") for site in self.sites.values()])
        self.offers = [site.offer(self.release, self.roster) for site in self.sites.values()]
        self.masked: set[str] = set()
        self.confirmations: list[Confirmation] = []
        self.shares: set[str] = set()

    def mask(self, name: str) -> None:
        self.sites[name].mask(self.release, self.roster, self.offers)
        self.masked.add(name)

    def confirm(self, name: str) -> None:
        """Say that all vectors arrived, true or not."""
        self.confirmations.append(self.sites[name].confirm(self.release, self.roster, self.roster.names))

    def unmask(self, name: str) -> None:
        self.sites[name].unmask(self.release, self.roster, self.roster.names, self.confirmations)
        self.shares.add(name)

    def is_open(self) -> bool:
        """Whether the server has all vectors, and enough shares; the masks of one that is not there stay on."""
        return self.masked == self.sites.keys() and len(self.shares) >= self.roster.threshold
