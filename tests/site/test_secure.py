"""The messages of a server that cheats, sent to whole sites with certificates, under the default policy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from fedmr_med.config import JobConfig
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.accountant import PrivacyBudget
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure.identity import Certified
from fedmr_med.secure.messages import Confirmation, Keys, Masked, Offer, Release, Roster, Shares
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import SecureSum
from fedmr_med.site.secure import SecureSite
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire.secure import (
    ASK_CONFIRMED,
    ASK_KEYS,
    ASK_MASKED,
    ASK_OFFER,
    ASK_SHARES,
    Answer,
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    session_of,
)
from tests.helpers.certificates import SERVER, Authority
from tests.helpers.errors import raises
from tests.helpers.small import small_job

HOSPITALS = ("h1", "h2", "h3", "h4", "h5")
JOB = small_job("fedmr", federation={"secure": "statistics", "min_sites": 3})
PRIVATE = small_job(
    "fedmr",
    federation={"secure": "statistics", "min_sites": 3, "private": {"clip": 1.0, "noise": 1.0}},
    head={"exchange": "last"},
)
TRAIN, HEAD = "train-0-ab", "head-{}-ab"
A = TypeVar("A", Keys, Offer, Masked, Confirmation, Shares)


class Federation:
    """Five hospitals with certificates, asked by encoded questions."""

    def __init__(self, folder: Path, job: JobConfig = JOB, policy: SitePolicy = SitePolicy()):  # noqa: B008
        self.job, self.authority = job, Authority()
        self.forms = reply_form(job)
        self.sites = {
            name: SecureSite(
                name, job, policy, folder / name, Certified(self.authority.kit(folder / "kit" / name, name))
            )
            for name in HOSPITALS
        }

    def hold(self, name: str) -> None:
        for number, site in enumerate(self.sites.values()):
            counts = np.full(JOB.task.num_classes, 11 + number)
            values = {PROTOTYPES.name: {"counts": counts}} if name.startswith("train") else {}
            site.hold("chain", name, values, self.forms)

    def ask(self, site: str, question: Question) -> Answer:
        asked = decode_question(encode_question(question))
        return decode_answer(encode_answer(self.sites[site].answer(asked)), site)

    def total(self, name: str, sites: Sequence[str]) -> SecureSum:
        """Go through all steps with some sites, in a session of its own."""
        self.hold(name)
        question = Question(
            ASK_KEYS,
            Release("chain", session_of(self.job.whole_digest(), name.replace("-", "")), name),
            self.job.digest(),
        )
        roster = Roster.of([_of(Keys, self.ask(site, question)) for site in sites])
        secure = SecureSum(question.release, roster, self.forms.layout(name).size)
        question = replace(question, step=ASK_OFFER, roster=roster)
        for site in sites:
            secure.take_offer(_of(Offer, self.ask(site, question)))
        question = replace(question, step=ASK_MASKED, offers=tuple(secure.offered()))
        for site in sites:
            secure.take_masked(_of(Masked, self.ask(site, question)))
        question = replace(question, step=ASK_CONFIRMED, offers=(), survivors=secure.survivors())
        for site in sites:
            secure.take_confirmation(_of(Confirmation, self.ask(site, question)))
        question = replace(question, step=ASK_SHARES, confirmations=tuple(secure.confirmations()))
        for site in sites:
            secure.take_shares(_of(Shares, self.ask(site, question)))
        secure.total()
        return secure


def _of(kind: type[A], answer: Answer) -> A:
    assert isinstance(answer, kind)
    return answer


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def test_the_server_does_not_take_part_as_one_more_site(federation: Federation, tmp_path: Path) -> None:
    """With its own certificate as a sixth site, it read one of five hospitals' class counts: all eight, exactly."""
    federation.hold(TRAIN)
    server = Participant(SERVER, tmp_path / "server", Certified(federation.authority.kit(tmp_path / "own", SERVER)))
    session = session_of(JOB.whole_digest(), "session")
    question = Question(ASK_KEYS, Release("chain", session, TRAIN), JOB.digest())
    keys = [_of(Keys, federation.ask(site, question)) for site in HOSPITALS]
    roster = Roster.of([*keys, server.keys("chain", session)])
    for site in HOSPITALS:
        with raises("secure.certificate", "role"):
            federation.ask(site, replace(question, step=ASK_OFFER, roster=roster))


def test_totals_are_over_one_cohort_by_default(federation: Federation) -> None:
    """Three totals over (1 2 3), (1 4 5) and (2 3 4 5) gave the counts of the first."""
    federation.total(HEAD.format(0), ["h1", "h2", "h3"])
    for number, sites in enumerate((["h1", "h4", "h5"], ["h2", "h3", "h4", "h5"]), start=1):
        with raises("secure.other-cohort"):
            federation.total(HEAD.format(number), sites)


def test_where_every_number_has_noise_any_sites_will_do(tmp_path: Path) -> None:
    federation = Federation(tmp_path, PRIVATE, SitePolicy(privacy=PrivacyBudget(epsilon=8)))
    federation.total(HEAD.format(0), ["h1", "h2", "h3"])
    federation.total(HEAD.format(1), ["h1", "h4", "h5"])
    federation.total(TRAIN, ["h1", "h2", "h3"])
    with raises("secure.other-cohort"):
        federation.total("train-1-ab", ["h1", "h4", "h5"])  # scores have no noise


def test_what_a_job_calls_noise_does_not_open_other_cohorts(tmp_path: Path) -> None:
    """Without a budget of the site nothing says how much noise there must be."""
    federation = Federation(tmp_path, PRIVATE)
    federation.total(HEAD.format(0), ["h1", "h2", "h3"])
    with raises("secure.other-cohort"):
        federation.total(HEAD.format(1), ["h1", "h4", "h5"])


@pytest.mark.slow
def test_sites_with_other_settings_of_the_job_have_no_total_in_common(tmp_path: Path) -> None:
    """A coordinator who writes the job too gave four of five sites settings that share nothing: T was the first's."""
    others = JOB.override({"policy": {"share_prototypes": False, "share_metrics": "none"}})
    federation = Federation(tmp_path)
    federation.hold(TRAIN)
    asked = {name: JOB if name == "h1" else others for name in HOSPITALS}
    for name, job in asked.items():
        kit = Certified(federation.authority.kit(tmp_path / "again" / name, name))
        federation.sites[name] = SecureSite(name, job, SitePolicy().restricted_by(job.policy), tmp_path / name, kit)
    for settings in (JOB, others):
        release = Release("chain", session_of(settings.whole_digest(), "session"), TRAIN)
        for name, job in asked.items():
            question = Question(ASK_KEYS, release, job.digest())
            if job == settings:
                federation.ask(name, question)
            else:
                with raises("wire.settings"):
                    federation.ask(name, question)


@pytest.mark.slow
def test_a_vector_that_was_made_under_other_settings_is_not_masked(federation: Federation, tmp_path: Path) -> None:
    federation.hold(TRAIN)
    changed = JOB.override({"train": {"lr": 0.002}})
    for name in HOSPITALS:
        kit = Certified(federation.authority.kit(tmp_path / "again" / name, name))
        federation.sites[name] = SecureSite(name, changed, SitePolicy(), tmp_path / name, kit)
    federation.job, federation.hold = changed, lambda name: None
    with raises("policy.changed"):
        federation.total(TRAIN, HOSPITALS)
