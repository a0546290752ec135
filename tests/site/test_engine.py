"""A site behind a plain call: its people and its policy are asked there, whatever carries the messages."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook
from fedmr_med.site.engine import Site
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.training import Aborted
from fedmr_med.site.view import Place, SiteViews
from fedmr_med.sites import load_site
from fedmr_med.wire import codec
from fedmr_med.wire.codec import Message, encode_task
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.errors import raises
from tests.helpers.site_at_work import full_reply
from tests.helpers.small import initial_state, small_job, task_for

JOB = small_job()
SHARES = "share_prototypes: true, share_metrics: per_class, min_cell_count: 1, training: null"
KINDS = ("train", "validate", "head")


class SiteOnDisk:
    """A site with a settings file and a book of decisions, asked by plain calls."""

    def __init__(self, folder: Path, policy: str = SHARES):
        self.folder, self.book = folder, ApprovalBook(folder / APPROVALS_FILE)
        self.set_policy(policy)
        self.meanwhile: Callable[[], None] = lambda: None
        self.train: Callable[[], SiteReply] | None = None
        place = Place("vienna-dias", folder / "state", people=self.book, job_id="chain")
        file = folder / "site.yaml"
        self.site = Site(SiteViews(place, lambda: (load_site(file), str(file)), lambda _: JOB), train=self._train)

    def set_policy(self, policy: str) -> None:
        (self.folder / "site.yaml").write_text(f"data: {{source: demo, center: 5}}\npolicy: {{{policy}}}\n")

    def ask(self, kind: str = "train", should_stop: Callable[[], bool] = lambda: False) -> Message:
        return self.site.answer(kind, encode_task(task_for(initial_state(JOB), JOB)), should_stop)

    def decide(self, *, approved: bool) -> None:
        self.book.decide("chain", approved=approved, by="steward")

    def _train(self, hospital: Hospital, task: TrainTask, should_stop: Callable[[], bool]) -> SiteReply:
        reply = hospital.train(task, should_stop) if self.train is None else self.train()
        self.meanwhile()
        return reply


@pytest.mark.parametrize("kind", [*KINDS, "secure", "submit_model"])
def test_a_job_that_nobody_has_approved_is_refused(tmp_path: Path, kind: str) -> None:
    site = SiteOnDisk(tmp_path, f"{SHARES}, approve: each, allow_submit_model: true")
    with raises("policy.not-approved", "policy.approve"):
        site.ask(kind)
    assert not (tmp_path / "state").exists(), "no image was read"
    assert [request.name for request in site.book.requests()] == [JOB.name]


@pytest.mark.parametrize("kind", KINDS)
def test_an_approved_job_is_answered(tmp_path: Path, kind: str) -> None:
    site = SiteOnDisk(tmp_path, f"{SHARES}, approve: each")
    with raises("policy.not-approved"):
        site.ask(kind)
    site.decide(approved=True)
    assert site.ask(kind).parts
    assert [request.answered for request in site.book.requests()] == [True]


def test_an_approval_taken_back_while_the_site_computes_keeps_its_answer_in(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path)
    site.meanwhile = lambda: site.decide(approved=False)
    with raises("policy.not-approved"):
        site.ask()
    assert [request.answered for request in site.book.requests()] == [False], "nothing left"


def test_a_policy_made_stricter_while_the_site_computes_holds_for_its_answer(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path)
    assert {codec.PROTOTYPES, codec.SCORES} <= site.ask().parts.keys()
    site.meanwhile = lambda: site.set_policy("share_prototypes: false, share_metrics: none, training: null")
    answer = site.ask()
    assert answer.parts.keys() == {codec.MODEL, codec.METHOD}
    assert (answer.meta[codec.SCORES], answer.meta[codec.REPORT]) == (None, None)


def test_a_policy_that_cannot_be_read_any_more_keeps_the_answer_in(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path)
    site.meanwhile = lambda: site.set_policy("share_prototypes: maybe")
    with raises("config.bool-parsing"):
        site.ask()


def test_floors_that_the_work_was_not_held_to_keep_the_answer_in(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path)
    floors = "{min_sites: 1, min_updates: 1, max_norm: 1.0e-3}"
    site.meanwhile = lambda: site.set_policy(f"share_prototypes: true, training: {floors}")
    with raises("policy.changed", "policy.training"):
        site.ask()
    site.meanwhile = lambda: None
    with raises("floor.norm"):
        site.ask()


def test_a_looser_policy_counts_from_the_next_task_on(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path, "share_prototypes: false, training: null")
    site.meanwhile = lambda: site.set_policy(SHARES)
    assert codec.PROTOTYPES not in site.ask().parts
    assert codec.PROTOTYPES in site.ask().parts


def test_whoever_makes_the_reply_sends_no_more_than_the_policy_allows(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path, "share_prototypes: false, share_metrics: none, training: null")
    site.train = lambda: full_reply()
    assert site.ask().parts.keys() == {codec.MODEL, codec.METHOD}
    secret = {"secret": full_reply().model["classifier.bias"]}
    site.train = lambda: replace(full_reply(), model=full_reply().model | secret)
    with raises("wire.form", "model"):
        site.ask()


def test_a_site_that_waits_for_its_people_can_be_stopped(tmp_path: Path) -> None:
    site = SiteOnDisk(tmp_path, f"{SHARES}, approve: each, approval_minutes: 5")
    with pytest.raises(Aborted):
        site.ask(should_stop=lambda: True)


def test_a_simulated_site_has_nobody_to_ask(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(f"data: {{source: demo, center: 5}}\npolicy: {{{SHARES}, approve: each}}\n")
    site = Site.simulated("vienna-dias", JOB, load_site(tmp_path / "site.yaml"), tmp_path / "state")
    assert site.answer("train", encode_task(task_for(initial_state(JOB), JOB))).parts


def test_a_job_that_a_rule_forbids_does_not_wait_for_a_person(tmp_path: Path) -> None:
    floors = "{min_sites: 1, min_updates: 1, max_jobs_per_day: 1}"
    site = SiteOnDisk(tmp_path, f"training: {floors}, approve: each, approval_minutes: 5")
    site.book.answered(JOB, job_id="another", chain="another")
    with raises("floor.jobs-per-day"):
        site.ask()
