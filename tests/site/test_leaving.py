"""What a site lets out when a person there has said that it leaves a chain, and before."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import JobConfig
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure.messages import Release
from fedmr_med.secure.participant import Participant
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook, in_words, settings_id
from fedmr_med.site.engine import Site
from fedmr_med.site.view import Place, SiteViews
from fedmr_med.sites import load_site
from fedmr_med.wire.codec import Message, encode_task
from fedmr_med.wire.secure import ASK_KEYS, ASK_PART, Question, encode_question, session_of
from tests.helpers.errors import raises
from tests.helpers.secure import CHAIN, begin, masked, opened, participants
from tests.helpers.small import initial_state, small_job, task_for

ONESHOT = {"federation": {"rounds": 0, "min_sites": 3}, "head": {"exchange": "last", "keep": True}}
PLAIN = small_job("fedavg", **ONESHOT)
SECURE = PLAIN.override({"federation": {"secure": "statistics"}})
RELEASE = "head-0-00"
OTHERS = ("site-001", "site-002", "site-003")


class AtWork:
    """A site with a book of decisions, whose vector is in an opened total of four."""

    def __init__(self, folder: Path, job: JobConfig):
        self.job, self.book = job, ApprovalBook(folder / APPROVALS_FILE)
        self.book.asked(job, job_id=CHAIN, chain=CHAIN)
        file = folder / "site.yaml"
        file.write_text(
            "data: {source: demo, center: 5}\n"
            "policy: {share_prototypes: true, share_metrics: per_class, min_cell_count: 1, training: null}\n"
        )
        self.meanwhile: Callable[[], None] = lambda: None
        self.place = Place("site-000", folder / "state", people=self.book, job_id=CHAIN)
        self.site = Site(SiteViews(self.place, lambda: (load_site(file), str(file)), self._read))

    def _read(self, _: object) -> JobConfig:
        self.meanwhile()
        return self.job

    def question(self, step: str = ASK_PART, rest: tuple[str, ...] = OTHERS, name: str = RELEASE) -> Message:
        session = session_of(self.job.whole_digest(), "later")
        question = Question(step, Release(CHAIN, session, name), self.job.digest(), survivors=rest)
        return self.site.answer("secure", encode_question(question))

    def open_total(self, folder: Path) -> np.ndarray:
        """Open a total with this site in it; return its vector."""
        sites = participants(folder, 4)
        own = self.place.state_folder / "chains" / CHAIN / "secure"
        sites["site-000"] = Participant("site-000", own, sites["site-000"].identity)
        size = reply_form(self.job).layout(RELEASE).size
        vectors = {name: np.arange(size, dtype=np.uint64) + number for number, name in enumerate(sites)}
        secure = masked(begin(sites, vectors, name=RELEASE), sites)
        total = opened(secure, sites)
        assert np.array_equal(total, sum(vectors.values()))
        return vectors["site-000"]


@pytest.fixture
def secure(tmp_path: Path) -> tuple[AtWork, np.ndarray]:
    at_work = AtWork(tmp_path, SECURE)
    return at_work, at_work.open_total(tmp_path / "sum")


def test_the_part_of_a_total_leaves_when_a_person_says_so_and_not_before(secure: tuple[AtWork, np.ndarray]) -> None:
    at_work, vector = secure
    with raises("policy.not-left"):
        at_work.question()
    at_work.book.leave(CHAIN, by="steward")
    answer = at_work.question()
    assert np.array_equal(answer.parts[ASK_PART]["vector"], np.negative(vector))
    again = at_work.question()
    assert np.array_equal(again.parts[ASK_PART]["vector"], np.negative(vector)), "the server may have lost it"


def test_a_site_that_left_answers_nothing_else_of_the_chain(secure: tuple[AtWork, np.ndarray]) -> None:
    at_work, _ = secure
    assert at_work.question(ASK_KEYS).parts
    at_work.book.leave(CHAIN, by="steward")
    with raises("policy.left"):
        at_work.question(ASK_KEYS)
    for kind in ("train", "validate", "head"):
        with raises("policy.left"):
            at_work.site.answer(kind, encode_task(task_for(initial_state(SECURE), SECURE)))


def test_a_site_that_leaves_while_it_computes_sends_nothing(tmp_path: Path) -> None:
    at_work = AtWork(tmp_path, PLAIN)
    seen: list[int] = []

    def second_look() -> None:
        seen.append(1)
        if len(seen) == 2:
            at_work.book.leave(CHAIN, by="steward")

    at_work.meanwhile = second_look
    with raises("policy.left"):
        at_work.site.answer("head", encode_task(task_for(initial_state(PLAIN), PLAIN)))


def test_leaving_one_chain_is_not_leaving_another(tmp_path: Path) -> None:
    book = ApprovalBook(tmp_path / APPROVALS_FILE)
    for chain in ("one", "two"):
        book.asked(PLAIN, job_id=chain, chain=chain)
    book.leave("one", by="steward")
    policy = SitePolicy()
    assert [book.status(policy, PLAIN, job_id=name, chain=name).left for name in ("one", "two")] == [True, False]
    assert book.left().keys() == {"one"}
    with raises("approval.unknown-job"):
        book.leave("three", by="steward")


@pytest.mark.parametrize(
    ("rest", "name", "code"),
    [
        (OTHERS[:2], RELEASE, "secure.too-few-left"),
        (("site-000", *OTHERS), RELEASE, "secure.no-total"),
        ((*OTHERS, "site-009"), RELEASE, "secure.no-total"),
        (OTHERS, "head-0-01", "secure.no-total"),
    ],
)
def test_a_server_that_lies_about_the_total_gets_no_part(
    secure: tuple[AtWork, np.ndarray], rest: tuple[str, ...], name: str, code: str
) -> None:
    at_work, _ = secure
    at_work.book.leave(CHAIN, by="steward")
    with raises(code):
        at_work.question(rest=rest, name=name)


def test_a_part_that_has_a_share_of_the_noise_alone_is_not_shown(tmp_path: Path) -> None:
    job = SECURE.override({"federation": {"private": {"clip": 1.0, "noise": 1.0}}})
    at_work = AtWork(tmp_path, job)
    at_work.open_total(tmp_path / "sum")
    at_work.book.leave(CHAIN, by="steward")
    with raises("secure.noise"):
        at_work.question()


def test_a_vector_stays_for_as_long_as_the_job_keeps_its_head(tmp_path: Path) -> None:
    sites = participants(tmp_path, 3)
    one = sites["site-000"]
    vectors = {name: np.full(4, 7, np.uint64) for name in sites}
    for kept, there in (("", False), ("head", True)):
        name = f"head-0-{kept or 'x'}"
        opened(masked(begin(sites, vectors, name=name, session=f"s{kept}"), sites), sites)
        one.hold(f"validate-0-{kept or 'x'}", np.zeros(4, np.uint64), kept=kept)
        assert (one.folder / f"{name}.npy").exists() is there
    one.hold("head-1-x", np.zeros(4, np.uint64), kept="head")
    assert not (one.folder / "head-0-head.npy").exists(), "the next head takes its place"


def test_a_steward_is_told_what_is_kept_and_nobody_decides_anew_when_another_leaves() -> None:
    assert any("keeps each site's statistics" in line for line in in_words(PLAIN))
    assert any("keeps the total" in line for line in in_words(SECURE))
    assert not any("keeps" in line for line in in_words(PLAIN.override({"head": {"keep": False}})))
    assert settings_id(PLAIN.override({"federation": {"without": ["msk"]}})) == settings_id(PLAIN)
    assert settings_id(PLAIN.override({"head": {"keep": False}})) != settings_id(PLAIN)
