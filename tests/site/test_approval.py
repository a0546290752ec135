"""A hospital sees what is asked of it, and what it has not approved is refused, as its policy says."""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import create_model

from fedmr_med.config import JobConfig, TrainConfig, load_job
from fedmr_med.files import journal
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import validated
from fedmr_med.site import approval
from fedmr_med.site.approval import ApprovalBook, Verdict, in_words, settings_id
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises

JOB = isic_job("fedmr")
LONGER = JOB.override({"federation": {"rounds": 20}, "train": {"lr": 0.5}})


@pytest.fixture
def book(tmp_path: Path) -> ApprovalBook:
    return ApprovalBook(tmp_path / "approvals.jsonl")


def decided(book: ApprovalBook, policy: SitePolicy, job: JobConfig, chain: str) -> Verdict:
    return book.status(policy, job, job_id=f"job of {chain}", chain=chain).verdict


def verdict(book: ApprovalBook, approve: str, job=JOB, chain: str = "chain-1") -> Verdict:
    policy, about = SitePolicy(approve=approve), {"job_id": f"job of {chain}", "chain": chain}
    if not book.status(policy, job, **about).asked:
        book.asked(job, **about)
    return decided(book, policy, job, chain)


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
    assert decided(book, SitePolicy(approve="each"), JOB, "chain-1") is Verdict.APPROVED
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
        decided(book, SitePolicy(approve="new_settings"), JOB, "chain-1")


OLD_JOB = load_job(REPOSITORY / "tests/server/data/checkpoint_441837c/fedmr.yaml")


@pytest.fixture
def old_book(tmp_path: Path) -> ApprovalBook:
    """A journal of commit 441837c: OLD_JOB approved as chain-1, and refused with train.lr 0.5 as chain-2."""
    shutil.copy(Path(__file__).parent / "data" / "approvals_441837c.jsonl", tmp_path / "approvals.jsonl")
    return ApprovalBook(tmp_path / "approvals.jsonl")


@pytest.mark.parametrize("approve", ["new_settings", "each"])
def test_decisions_of_an_earlier_version_hold_for_equal_content(old_book: ApprovalBook, approve: str) -> None:
    policy = SitePolicy(approve=approve)
    assert decided(old_book, policy, OLD_JOB, "chain-1") is Verdict.APPROVED
    assert decided(old_book, policy, OLD_JOB.override({"train": {"lr": 0.5}}), "chain-2") is Verdict.REFUSED
    assert decided(old_book, policy, OLD_JOB.override({"train": {"lr": 0.6}}), "chain-1") is Verdict.OPEN
    first, second = old_book.requests()
    assert (first.settings, first.state, first.answered) == (settings_id(OLD_JOB), Verdict.APPROVED, True)
    assert (second.state, second.changed) == (Verdict.REFUSED, ["train.lr: 0.001 -> 0.5"])


def test_a_decision_of_an_earlier_version_can_be_taken_back(old_book: ApprovalBook) -> None:
    old_book.decide(settings_id(OLD_JOB)[:12], approved=False, by="steward")
    assert decided(old_book, SitePolicy(), OLD_JOB, "chain-1") is Verdict.REFUSED


def test_a_short_id_that_stands_for_two_contents_approves_neither(old_book: ApprovalBook) -> None:
    asked = next(line for line in journal.read(old_book.path).entries if line["event"] == "asked")
    content = json.loads(json.dumps(asked["content"]))
    content["train"]["lr"] = 0.7
    journal.append(old_book.path, asked | {"content": content, "chain": "chain-3", "job": "job-3"})
    for lr in (0.001, 0.7):
        job = OLD_JOB.override({"train": {"lr": lr}})
        assert decided(old_book, SitePolicy(approve="new_settings"), job, "chain-1") is Verdict.OPEN


def test_settings_that_are_not_known_any_more_are_listed_and_approve_nothing(old_book: ApprovalBook) -> None:
    asked = next(line for line in journal.read(old_book.path).entries if line["event"] == "asked")
    gone = {"settings": "0" * 12, "chain": "chain-3", "job": "job-3", "content": asked["content"] | {"gone": 1}}
    journal.append(old_book.path, asked | gone)
    old_book.decide("chain-3", approved=True, by="steward")
    assert [request.chain for request in old_book.requests()] == ["chain-1", "chain-2", "chain-3"]
    assert decided(old_book, SitePolicy(approve="each"), OLD_JOB, "chain-3") is Verdict.OPEN


def test_a_key_that_a_version_adds_takes_no_approval_back(
    old_book: ApprovalBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_train = create_model("LaterTrain", __base__=TrainConfig, warmup=(int, 5))
    later = create_model("LaterJob", __base__=JobConfig, train=(later_train, ...))
    monkeypatch.setattr(approval, "JobConfig", later)
    old_book.asked(OLD_JOB, job_id="job-3", chain="chain-3")
    job = later.model_validate(OLD_JOB.model_dump(mode="json"))
    changed = job.override({"train": {"warmup": 1}})
    for chain in ("chain-1", "chain-3"):
        assert decided(old_book, SitePolicy(approve="new_settings"), job, chain) is Verdict.APPROVED
        assert decided(old_book, SitePolicy(approve="new_settings"), changed, chain) is Verdict.OPEN
    old_book.asked(changed, job_id="job-4", chain="chain-4")
    assert [request.changed for request in old_book.requests()][2:] == [[], ["train.warmup: 5 -> 1"]]


def test_the_words_name_weights_head_scatter_secure_sums_and_every_exchange() -> None:
    oneshot = load_job(REPOSITORY / "jobs/isic_oneshot/app/config/fedmr.yaml")
    text = " ".join(in_words(oneshot))
    for part in (
        "head (1x)",
        "validate with the closed-form head (1x)",
        "counts and scatter",
        "secure: none",
        "seed 0",
    ):
        assert part in text
    assert "train (" not in text
    changes = {"model": {"weights": "a" * 64}}
    text = " ".join(in_words(JOB.override(changes | {"federation": {"secure": "all", "min_sites": 3}})))
    for part in ("train (9x)", "validate (1x)", "head (1x)", "secure: all", "a" * 64):
        assert part in text


@pytest.mark.parametrize("text", ["a\nb", "a\r", "\x1b[2J", "\x9b31m", "a\u202eb", "a\u2028b"])
def test_a_job_has_no_control_characters(text: str) -> None:
    for options in ({text: 1}, {"pretrained": text}, {"nested": [{"deeper": text}]}):
        with raises("config.text"):
            JOB.override({"model": {"options": options}})
    with raises("config.text"):
        validated(JobConfig, JOB.model_dump(mode="json") | {"demo": {"model": {"options": {"note": text}}}}, "the test")
