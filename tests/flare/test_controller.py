"""The controller over FLARE's own bookkeeping of tasks: quorum, refusals, late replies, resumption."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fedmr_med.evaluation.metrics import scores
from fedmr_med.files import journal
from fedmr_med.server.chain import BEST_MODEL, CHECKPOINT, EVENTS, RESULTS, Chain
from fedmr_med.statistics.moments import PROTOTYPES
from tests.helpers.containers import encode_reply, encode_statistics, encode_validation
from tests.helpers.controller import JOB_ID, ControllerAtWork
from tests.helpers.site_at_work import full_reply, full_statistics
from tests.helpers.small import small_job

SITES = ("bcn", "msk", "vienna-dias")
JOB = small_job(federation={"min_sites": 2, "rounds": 1, "grace_seconds": 0})


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[ControllerAtWork]:
    with ControllerAtWork(tmp_path, JOB, SITES).running() as running:
        yield running


def good() -> Shareable:
    return encode_reply(full_reply())


def with_nan() -> Shareable:
    model = {**full_reply().model, "classifier.bias": np.full(8, np.nan, np.float32)}
    return encode_reply(replace(full_reply(), model=model))


def with_meta(**changes: object) -> Shareable:
    """Return a reply as a hostile site would send it, past its own filter and guard."""
    reply = encode_reply(full_reply())
    reply["DXO"]["meta"].update(changes)
    return reply


def with_nan_loss() -> Shareable:
    return with_meta(report={"terms": {"classification": float("nan")}})


def with_text_loss() -> Shareable:
    return with_meta(report={"terms": {"classification": "text"}})


def with_huge_size() -> Shareable:
    return with_meta(samples=10**400)


def failed() -> Shareable:
    return make_reply(ReturnCode.EXECUTION_EXCEPTION)


def test_two_good_replies_close_the_round(at_work: ControllerAtWork) -> None:
    tasks = {site: at_work.receive(site) for site in SITES}
    at_work.answer("bcn", tasks["bcn"], good())
    assert at_work.heard("bcn")["answered"] == ["bcn"], "one usable reply of the two that are needed"
    at_work.answer("msk", tasks["msk"], good())
    name, *_ = at_work.receive("bcn")
    assert name == "validate"
    assert at_work.progress()["round"] == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (with_nan, "NaN"),
        (with_nan_loss, "the report: terms.classification"),
        (with_text_loss, "the report: terms.classification"),
        (with_huge_size, "'samples' is not between"),
        (failed, "its training failed"),
    ],
)
def test_a_reply_of_no_use_does_not_count_towards_the_quorum(at_work: ControllerAtWork, bad, reason: str) -> None:
    tasks = {site: at_work.receive(site) for site in SITES}
    at_work.answer("bcn", tasks["bcn"], bad())
    at_work.answer("msk", tasks["msk"], good())
    at_work.heard("bcn")
    progress = at_work.heard("msk")
    assert progress["round"] == 0
    assert progress["waiting"] == ["vienna-dias"]
    assert reason in progress["refused"]["bcn"]
    at_work.answer("vienna-dias", tasks["vienna-dias"], good())
    assert at_work.receive("bcn")[0] == "validate"


def test_a_round_nobody_is_left_to_save_ends_the_job_with_the_reasons(at_work: ControllerAtWork) -> None:
    for site in SITES:
        at_work.answer(site, at_work.receive(site), with_nan())
    at_work.thread.join(30)
    (reason,) = at_work.panics.reasons
    assert "0 usable replies" in reason
    assert all(f"{site}: " in reason for site in SITES)


def test_a_chain_that_cannot_be_resumed_ends_the_job_with_the_reason_alone(tmp_path: Path) -> None:
    folder = tmp_path / "chains" / JOB_ID
    folder.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(b"damaged")
    with ControllerAtWork(tmp_path, JOB, SITES).running() as at_work:
        at_work.thread.join(30)
    (reason,) = at_work.panics.reasons
    assert "cannot be read" in reason


def test_a_reply_in_another_sites_name_is_refused(at_work: ControllerAtWork) -> None:
    tasks = {site: at_work.receive(site) for site in SITES}
    at_work.answer("bcn", tasks["bcn"], good(), named="msk")
    assert at_work.heard("bcn")["refused"] == {"bcn": "it calls itself 'msk'"}
    at_work.answer("msk", tasks["msk"], good())
    assert at_work.heard("msk")["answered"] == ["msk"]


def test_what_is_no_message_at_all_is_refused(at_work: ControllerAtWork) -> None:
    tasks = {site: at_work.receive(site) for site in SITES}
    at_work.answer("bcn", tasks["bcn"], Shareable())
    assert "not a DXO" in at_work.heard("bcn")["refused"]["bcn"]


def test_a_late_reply_is_named_in_the_log_and_written_down(
    at_work: ControllerAtWork, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = {site: at_work.receive(site) for site in SITES}
    for site in ("bcn", "msk"):
        at_work.answer(site, tasks[site], good())
    at_work.receive("bcn")
    time.sleep(0.5)
    at_work.answer("vienna-dias", tasks["vienna-dias"], good())
    assert any("vienna-dias" in line and "after the round was closed" in line for line in caplog.messages)
    start, event = journal.read(tmp_path / "chains" / JOB_ID / EVENTS).entries
    assert (start["event"], len(start["weights"])) == ("start", 64)
    assert (event["event"], event["site"], event["task"]) == ("late reply", "vienna-dias", "train")


def test_a_finished_job_leaves_its_files_and_lets_go_of_the_chain(at_work: ControllerAtWork, tmp_path: Path) -> None:
    answers = {
        "train": good,
        "validate": lambda: encode_validation(full_reply().scores),
        "head": lambda: encode_statistics(replace(full_statistics(), round=1)),
    }
    asked = []
    for _ in ("train", "validate", "head", "validate with the head"):
        for site in SITES[:2]:
            task = at_work.receive(site)
            at_work.answer(site, task, answers[task[0]]())
        asked.append(task[0])
    assert asked == ["train", "validate", "head", "validate"]
    at_work.thread.join(30)
    assert not at_work.panics.reasons
    chain = tmp_path / "chains" / JOB_ID
    for name in (CHECKPOINT, BEST_MODEL, RESULTS):
        assert (chain / name).read_bytes() == (tmp_path / JOB_ID / name).read_bytes()
    resumed = Chain(chain, JOB)
    state = resumed.open(patience=0)
    assert (state.round, state.history.head.sites) == (1, ("bcn", "msk"))
    resumed.close()


def test_feddyn_counts_a_site_that_died_among_all_sites(tmp_path: Path) -> None:
    """It divides by the number of all sites; FLARE names only those that are connected."""
    job = small_job("feddyn", chain="shared", federation={"min_sites": 2, "rounds": 1, "grace_seconds": 0})
    models = []
    for known, connected in (({"vienna-dias": 0}, SITES[:2]), ({}, SITES)):
        folder = tmp_path / str(len(connected))
        chain = Chain(folder / "chains" / "shared", job)
        chain.save(replace(chain.open(), accepted=known))
        chain.close()
        with ControllerAtWork(folder, job, connected).running() as at_work:
            tasks = {site: at_work.receive(site) for site in connected}
            for site in SITES[:2]:
                reply = replace(full_reply(), payload={}).with_statistic(PROTOTYPES, None)
                at_work.answer(site, tasks[site], encode_reply(reply))
            at_work.receive("bcn")
            models.append(at_work.controller._state.model)
    assert all(np.array_equal(models[0][name], models[1][name]) for name in models[0])


def test_a_job_without_rounds_asks_for_one_exchange_and_the_scores_of_its_head(tmp_path: Path) -> None:
    job = small_job("fedavg", head={"exchange": "last"}, federation={"min_sites": 2, "rounds": 0, "grace_seconds": 0})
    answers = {
        "validate": lambda: encode_validation(full_reply().scores),
        "head": lambda: encode_statistics(replace(full_statistics(), round=0)),
    }
    asked = []
    with ControllerAtWork(tmp_path, job, SITES[:2]).running() as at_work:
        for _ in ("head", "validate with the head"):
            for site in SITES[:2]:
                task = at_work.receive(site)
                progress = at_work.progress()
                assert (progress["asked"], progress["rounds"]) == (task[0], 0)
                assert site in progress["waiting"]
                at_work.answer(site, task, answers[task[0]]())
            asked.append(task[0])
        at_work.thread.join(30)
        assert not at_work.panics.reasons
    assert asked == ["head", "validate"]
    resumed = Chain(tmp_path / "chains" / JOB_ID, job)
    state = resumed.open(patience=0)
    assert (state.round, state.history.rounds, state.history.head.sites) == (0, (), ("bcn", "msk"))
    resumed.close()


def test_a_job_stops_where_its_settings_say_so_and_its_successor_adds_no_round(tmp_path: Path) -> None:
    federation = {"min_sites": 2, "rounds": 9, "grace_seconds": 0, "stop": {"patience": 1}}
    job = small_job("fedavg", chain="shared", federation=federation)
    every_class = scores(np.eye(8, dtype=np.int64))
    for asked in (["train", "train", "train", "validate"], []):
        with ControllerAtWork(tmp_path, job, SITES[:2]).running() as at_work:
            for round_number, expected in enumerate(asked):
                for site in SITES[:2]:
                    task = at_work.receive(site)
                    assert task[0] == expected
                    reply = replace(full_reply(), round=round_number, payload={}, statistics={"scores": every_class})
                    answer = encode_reply(reply) if expected == "train" else encode_validation(reply.scores)
                    at_work.answer(site, task, answer)
            at_work.thread.join(30)
            assert not at_work.panics.reasons
            assert at_work.controller._state.round == 3
