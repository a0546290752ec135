"""The executor with real FLARE objects: settings by the rules, tasks answered, errors reported by code alone."""

import json
import logging
from pathlib import Path
from threading import Thread

import pytest
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.config import JobConfig
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.privacy import refusals
from fedmr_med.schema import dump_yaml
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook, Verdict
from tests.helpers import containers as wire
from tests.helpers.contexts import JOB_ID, site_context
from tests.helpers.federation import wait_for
from tests.helpers.small import initial_state, small_job, task_for

DEMO = "data: {source: demo, center: 5}\n"
OPEN = DEMO + "policy: {share_prototypes: true, share_metrics: per_class, min_cell_count: 1, training: null}\n"
CLOSED = DEMO + "policy: {share_prototypes: false, share_metrics: none, training: null}\n"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMR_MED_SITES", raising=False)
    monkeypatch.delenv("FEDMR_MED_ISIC", raising=False)


def deploy(root: Path, job: JobConfig, *, local: str | None = None, carried: str | None = None) -> None:
    """Lay out a site's workspace as FLARE does."""
    config = root / JOB_ID / "app_msk" / "config"
    config.mkdir(parents=True)
    (config / "fedmr.yaml").write_text(dump_yaml(job))
    (root / "local").mkdir()
    if local is not None:
        (root / "local" / "site.yaml").write_text(local)
    if carried is not None:
        (config / "sites" / "msk").mkdir(parents=True)
        (config / "sites" / "msk" / "site.yaml").write_text(carried)


def ask(root: Path, task: str, *, simulated: bool = False, job: JobConfig | None = None) -> Shareable:
    job = job or small_job()
    shareable = wire.encode_task(task_for(initial_state(job), job))
    return FedMRExecutor().execute(task, shareable, site_context(root, "msk", simulated=simulated), Signal())


def parts(reply: Shareable) -> set[str]:
    assert reply.get_return_code() == ReturnCode.OK
    return set(from_shareable(reply).data)


def test_a_site_trains_by_its_own_settings(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=CLOSED, carried=OPEN)
    assert parts(ask(tmp_path, "train", simulated=True)) == {"model", "method"}


def test_what_a_job_carries_counts_in_the_simulator_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deploy(tmp_path, small_job(), carried=OPEN)
    assert parts(ask(tmp_path, "train", simulated=True)) == {"model", "method", "prototypes", "scores"}
    with caplog.at_level(logging.ERROR):
        refused = ask(tmp_path, "train", simulated=False)
    assert refused.get_return_code() == refusals.CONFIG
    assert "site.yaml" in caplog.text


def test_a_provisioned_site_without_its_data_does_not_fall_back_to_the_demo(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(tmp_path, small_job(), local="data: {source: flamby_isic, center: 4}\npolicy: {training: null}\n")
    with caplog.at_level(logging.ERROR):
        reply = ask(tmp_path, "train")
    assert reply.get_return_code() == refusals.DATA
    assert "FEDMR_MED_ISIC" in caplog.text


@pytest.mark.parametrize(
    "content", ["policy: {share_prototypes: true", DEMO + "policy: {share_prototypes: true, x: 1}"]
)
def test_with_an_unreadable_policy_nothing_leaves(tmp_path: Path, content: str) -> None:
    deploy(tmp_path, small_job(), local=content, carried=OPEN)
    reply = ask(tmp_path, "train", simulated=True)
    assert reply.get_return_code() == refusals.CONFIG
    assert "DXO" not in reply


def test_the_reason_of_an_error_stays_at_the_site(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local="data: {source: flamby_isic, center: 4, root: /secret/folder}\n")
    assert "secret" not in str(ask(tmp_path, "train"))


def test_validate_scores_the_received_model(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=OPEN)
    scores = wire.decode_validation(ask(tmp_path, "validate"), 8)
    assert scores.samples > 0
    assert scores.confusion is not None


def test_validate_at_a_site_that_shares_no_metrics_is_empty(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=CLOSED)
    assert wire.decode_validation(ask(tmp_path, "validate"), 8) is None


def test_submit_model_is_off_by_default(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=OPEN)
    assert ask(tmp_path, "submit_model").get_return_code() == refusals.POLICY


def test_an_unknown_task_is_refused(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=OPEN)
    assert ask(tmp_path, "dump_images").get_return_code() == ReturnCode.TASK_UNKNOWN


def test_a_task_that_is_none_is_refused(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=OPEN)
    reply = FedMRExecutor().execute("train", Shareable(), site_context(tmp_path, "msk", simulated=False), Signal())
    assert reply.get_return_code() == refusals.TASK


@pytest.mark.parametrize("task", ["train", "validate", "head"])
def test_a_site_that_was_given_another_file_than_the_server_refuses(tmp_path: Path, task: str) -> None:
    """A job can carry a file of settings for each site; one that differs would train something else unseen."""
    deploy(tmp_path, small_job(), local=OPEN)
    other = small_job(train={"lr": 0.09})
    assert ask(tmp_path, task, job=other).get_return_code() == refusals.TASK
    assert not (tmp_path / "released.jsonl").exists()


def test_an_abort_stops_training(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=OPEN)
    signal = Signal()
    signal.trigger("stop")
    task = wire.encode_task(task_for(initial_state(small_job()), small_job()))
    reply = FedMRExecutor().execute("train", task, site_context(tmp_path, "msk", simulated=False), signal)
    assert reply.get_return_code() == ReturnCode.TASK_ABORTED


def test_the_demo_says_that_it_is_the_demo(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deploy(tmp_path, small_job(), carried="data: {source: flamby_isic, center: 4}\npolicy: {training: null}\n")
    with caplog.at_level(logging.INFO):
        ask(tmp_path, "validate", simulated=True)
    assert "DEMO" in caplog.text


@pytest.mark.parametrize("left_over", ["", "data: {source: manifest, root: /data/elsewhere}\n"], ids=["empty", "other"])
def test_a_site_folder_that_a_copied_job_has_left_over_does_no_harm(tmp_path: Path, left_over: str) -> None:
    deploy(tmp_path, small_job(), carried="data: {source: flamby_isic, center: 4}\npolicy: {training: null}\n")
    (tmp_path / JOB_ID / "meta.json").write_text(json.dumps({"deploy_map": {"app": ["server", "msk"]}}))
    folder = tmp_path / JOB_ID / "app_msk" / "config" / "sites" / "bcn"
    folder.mkdir()
    if left_over:
        (folder / "site.yaml").write_text(left_over)
    assert ask(tmp_path, "validate", simulated=True).get_return_code() == ReturnCode.OK


APPROVES = (
    "data: {{source: demo, center: 5}}\npolicy: {{approve: {approve}, approval_minutes: {minutes}, training: null}}\n"
)


def test_a_job_that_nobody_here_has_approved_is_refused_before_any_image_is_read(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=APPROVES.format(approve="new_settings", minutes=0))
    assert ask(tmp_path, "train").get_return_code() == refusals.NOT_APPROVED
    assert not (tmp_path / "client_state").exists()
    book = ApprovalBook(tmp_path / APPROVALS_FILE)
    assert [request.state for request in book.requests()] == [Verdict.OPEN]
    book.decide(JOB_ID, approved=True, by="steward")
    assert ask(tmp_path, "train").get_return_code() == ReturnCode.OK
    book.decide(JOB_ID, approved=False, by="steward")
    assert ask(tmp_path, "train").get_return_code() == refusals.NOT_APPROVED, "also in the midst of a chain"


@pytest.mark.slow
def test_a_job_waits_for_the_person_as_long_as_the_policy_says(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=APPROVES.format(approve="each", minutes=5))
    book = ApprovalBook(tmp_path / APPROVALS_FILE)

    def approve() -> None:
        wait_for(lambda: book.requests(), "the request is written down", seconds=60)
        book.decide(JOB_ID, approved=True, by="steward")

    person = Thread(target=approve)
    person.start()
    assert ask(tmp_path, "train").get_return_code() == ReturnCode.OK
    person.join()


def test_a_simulated_site_has_nobody_to_ask(tmp_path: Path) -> None:
    deploy(tmp_path, small_job(), local=APPROVES.format(approve="each", minutes=0))
    assert ask(tmp_path, "train", simulated=True).get_return_code() == ReturnCode.OK


def test_a_simulated_site_on_the_demo_does_not_train_with_others_that_have_images(tmp_path: Path) -> None:
    """The server refuses such a federation; a site that it does not know to be on the demo has other settings."""
    job = small_job().model_copy(update={"demo": {"train": {"lr": 0.02}}})
    deploy(tmp_path, job, carried="data: {source: flamby_isic, center: 4}\npolicy: {training: null}\n")
    assert ask(tmp_path, "train", simulated=True, job=job).get_return_code() == refusals.TASK
    assert ask(tmp_path, "validate", simulated=True, job=job.for_demo()).get_return_code() == ReturnCode.OK
