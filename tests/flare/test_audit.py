"""The audit log says what left and never a value; what cannot be audited does not leave."""

import json
from pathlib import Path

import numpy as np
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.files import journal
from fedmr_med.flare.audit import AUDIT_FILE, AuditLog
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from tests.helpers.site_at_work import SHARES_ALL, SHARES_NOTHING, SiteAtWork, TalkativeExecutor, full_reply


def audited(folder: Path, site_file: str) -> SiteAtWork:
    layers = {"site_filters": (PrototypeFilter(),), "components": (PolicyGuard(), AuditLog())}
    return SiteAtWork(folder, site_file, TalkativeExecutor(), **layers)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / AUDIT_FILE).read_text().splitlines()]


def test_each_reply_is_one_line_with_kinds_shapes_bytes_and_classes(tmp_path: Path) -> None:
    site = audited(tmp_path, SHARES_ALL)
    site.answer()
    site.answer("validate")
    train, validate = lines(tmp_path)
    assert (train["task"], train["round"], train["code"]) == ("train", 1, "OK")
    sent = full_reply()
    assert train["parts"]["model"]["kind"] == "WEIGHTS"
    assert train["parts"]["model"]["bytes"] == sum(array.nbytes for array in sent.model.values())
    assert train["parts"]["model"]["shapes"].keys() == sent.model.keys()
    held = [name for name, n in zip(site.job.task.class_names, sent.prototypes.counts, strict=True) if n]
    assert train["parts"]["prototypes"]["classes"] == held
    assert train["parts"]["prototypes"]["shapes"]["sums"] == ["float32", *sent.prototypes.sums.shape]
    assert train["metrics"] == validate["metrics"] == "per_class"


def test_an_opted_out_site_sees_that_no_prototype_and_no_metric_left(tmp_path: Path) -> None:
    audited(tmp_path, SHARES_NOTHING).answer()
    (line,) = lines(tmp_path)
    assert set(line["parts"]) == {"model", "method"}
    assert line["metrics"] == "none"


def test_a_refused_reply_is_recorded_as_such(tmp_path: Path) -> None:
    site = SiteAtWork(tmp_path, SHARES_NOTHING, TalkativeExecutor(), components=(PolicyGuard(), AuditLog()))
    site.answer()
    (line,) = lines(tmp_path)
    assert (line["code"], line["bytes"], line["parts"]) == (ReturnCode.TASK_RESULT_FILTER_ERROR, 0, {})


class FailingExecutor(Executor):
    """An executor that finds no images, or falls over."""

    def __init__(self, error: Exception):
        super().__init__()
        self.error = error

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        raise self.error


def test_a_failed_reply_is_one_line_too(tmp_path: Path) -> None:
    layers = {"site_filters": (PrototypeFilter(),), "components": (PolicyGuard(), AuditLog())}
    SiteAtWork(tmp_path, SHARES_ALL, FailingExecutor(ValueError("out of memory")), **layers).answer()
    (line,) = lines(tmp_path)
    assert (line["code"], line["bytes"], line["task"]) == ("NO_REPLY", 0, "train")


def test_the_reason_is_written_down_here_and_does_not_leave(tmp_path: Path) -> None:
    layers = {"site_filters": (PrototypeFilter(),), "components": (PolicyGuard(), AuditLog())}
    site_file = "data: {source: manifest, root: /no/such/folder}\npolicy: {training: null}\n"
    site = SiteAtWork(tmp_path, site_file, FedMRExecutor(), **layers)
    reply = site.answer()
    assert reply.get_return_code() == "FEDMR_DATA"
    assert "/no/such/folder" not in repr(reply)
    (line,) = lines(tmp_path)
    assert line["code"] == "FEDMR_DATA"
    assert "/no/such/folder" in line["reason"]


def test_a_reply_that_the_server_asks_for_beside_the_tasks_is_written_down_too(tmp_path: Path) -> None:
    """FLARE answers such a request without the event that comes before sending."""
    site = audited(tmp_path, SHARES_ALL)
    request = site.task()
    request.set_header("__task_name__", "train")
    request.set_header("__task_id__", "task-1")
    reply = site.runner._handle_do_task("do_task", request, site.context())
    assert reply.get_return_code() == ReturnCode.OK
    (line,) = lines(tmp_path)
    assert line["parts"]["prototypes"]["classes"]


def test_the_lines_are_a_chain(tmp_path: Path) -> None:
    site = audited(tmp_path, SHARES_ALL)
    site.answer()
    site.answer("validate")
    assert journal.read(tmp_path / AUDIT_FILE).problems == ()
    path = tmp_path / AUDIT_FILE
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert journal.read(path).problems


def test_no_value_is_written(tmp_path: Path) -> None:
    audited(tmp_path, SHARES_ALL).answer()
    text = (tmp_path / AUDIT_FILE).read_text()
    values = np.concatenate(
        [full_reply().prototypes.sums.float().flatten(), *(a.flatten() for a in full_reply().model.values())]
    )
    fractions = [float(value) for value in values[:500] if value % 1]
    assert fractions
    assert not any(str(value)[:8] in text for value in fractions)


def test_what_cannot_be_written_down_stays(tmp_path: Path) -> None:
    site = audited(tmp_path, SHARES_ALL)
    (tmp_path / AUDIT_FILE).mkdir()
    reply = site.answer()
    assert reply.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert "DXO" not in reply
