"""A hospital sees what is asked of it, and what it has not approved is refused, as its policy says."""

from pathlib import Path

import pytest

from fedmr_med.jobs.isic import isic_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.site.approval import ApprovalBook, Verdict, in_words, settings_id
from tests.helpers.errors import raises

JOB = isic_job("fedmr")
LONGER = JOB.override({"federation": {"rounds": 20}, "train": {"lr": 0.5}})


@pytest.fixture
def book(tmp_path: Path) -> ApprovalBook:
    return ApprovalBook(tmp_path / "approvals.jsonl")


def verdict(book: ApprovalBook, approve: str, job=JOB, chain: str = "chain-1") -> Verdict:
    book.asked(job, job_id=f"job of {chain}", chain=chain)
    return book.verdict(SitePolicy(approve=approve), job, chain)


def test_always_takes_every_job_and_still_lists_it(book: ApprovalBook) -> None:
    assert verdict(book, "always") is Verdict.APPROVED
    assert [request.name for request in book.requests()] == ["isic_fedmr"]


def test_a_job_that_was_answered_waits_for_nobody(book: ApprovalBook) -> None:
    verdict(book, "always")
    assert [request.status for request in book.requests()] == ["waits for a decision"]
    book.answered(JOB, job_id="job of chain-1", chain="chain-1")
    assert [request.status for request in book.requests()] == ["answered without a decision, as the policy says"]


def test_new_settings_wait_for_a_person_and_count_for_later_chains(book: ApprovalBook) -> None:
    assert verdict(book, "new_settings") is Verdict.OPEN
    book.decide("chain-1", approved=True, by="steward")
    assert verdict(book, "new_settings") is Verdict.APPROVED
    assert verdict(book, "new_settings", chain="chain-2") is Verdict.APPROVED
    assert verdict(book, "new_settings", LONGER, "chain-3") is Verdict.OPEN


def test_each_asks_for_every_chain_and_not_again_for_its_follow_ups(book: ApprovalBook) -> None:
    assert verdict(book, "each") is Verdict.OPEN
    book.decide(settings_id(JOB), approved=True, by="steward")
    assert verdict(book, "each") is Verdict.APPROVED
    book.asked(JOB.model_copy(update={"chain": "chain-1"}), job_id="follow-up", chain="chain-1")
    assert book.verdict(SitePolicy(approve="each"), JOB, "chain-1") is Verdict.APPROVED
    assert verdict(book, "each", chain="chain-2") is Verdict.OPEN


@pytest.mark.parametrize("approve", ["always", "new_settings", "each"])
def test_a_refusal_counts_under_every_policy_until_it_is_taken_back(book: ApprovalBook, approve: str) -> None:
    verdict(book, approve)
    book.decide("chain-1", approved=False, by="steward")
    assert verdict(book, approve) is Verdict.REFUSED
    book.decide("chain-1", approved=True, by="steward")
    assert verdict(book, approve) is Verdict.APPROVED


def test_a_job_may_ask_for_more_approval_and_never_for_less() -> None:
    assert SitePolicy(approve="each").restricted_by(SitePolicy(approve="always")).approve == "each"
    assert SitePolicy().restricted_by(SitePolicy(approve="new_settings")).approve == "new_settings"
    assert SitePolicy(approval_minutes=5).restricted_by(SitePolicy()).approval_minutes == 5


def test_the_name_and_the_chain_do_not_make_other_settings() -> None:
    renamed = JOB.model_copy(update={"name": "harmless", "chain": "abc"})
    assert settings_id(renamed) == settings_id(JOB) != settings_id(LONGER)


def test_what_is_asked_is_said_in_plain_words() -> None:
    text = " ".join(in_words(JOB))
    for part in ("fedmr", "efficientnet_b0", "9 rounds", "100 steps of 64 images", "MEL, NV", "at least", "prototypes"):
        assert part in text


def test_a_request_names_its_differences_to_the_last_approved_one(book: ApprovalBook) -> None:
    verdict(book, "new_settings")
    book.decide("chain-1", approved=True, by="steward")
    verdict(book, "new_settings", LONGER, "chain-2")
    first, second = book.requests()
    assert (first.state, first.changed) == (Verdict.APPROVED, None)
    assert (second.state, second.changed) == (Verdict.OPEN, ["federation.rounds: 9 -> 20", "train.lr: 0.01 -> 0.5"])


def test_an_id_that_names_no_request_or_several_is_refused(book: ApprovalBook) -> None:
    verdict(book, "each")
    with raises("approval.unknown-job"):
        book.decide("zzz", approved=True, by="steward")
    verdict(book, "each", LONGER, "chain-2")
    with raises("approval.ambiguous"):
        book.decide("", approved=True, by="steward")


def test_a_changed_book_approves_nothing(book: ApprovalBook) -> None:
    verdict(book, "new_settings")
    book.decide("chain-1", approved=False, by="steward")
    verdict(book, "new_settings", LONGER, "chain-2")
    book.path.write_text(book.path.read_text().replace("refused", "approved"))
    with raises("record.changed"):
        book.verdict(SitePolicy(approve="new_settings"), JOB, "chain-1")
