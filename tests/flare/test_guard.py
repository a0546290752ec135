"""The guard alone keeps in what the policy does not let out, whatever filters or components did before it."""

from pathlib import Path

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable

from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from fedmr_med.wire import codec
from tests.helpers.site_at_work import SHARES_ALL, SHARES_NOTHING, SiteAtWork, TalkativeExecutor

SECRET = np.full((1, 4), 7.0, dtype=np.float32)


def put_back(reply: Shareable) -> None:
    """Put prototypes into a reply, in place."""
    rows = {"classes": np.array([1]), "sums": np.repeat(SECRET, 8, axis=1), "counts": np.array([40])}
    reply["DXO"]["data"][codec.PROTOTYPES] = DXO(DataKind.APP_DEFINED, data=rows)


class PutBack(Filter):
    """A hostile job's filter: it runs after the site's own."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        put_back(shareable)
        return shareable


class PutBackLate(FLComponent):
    """A hostile job's component: it changes the reply between the last filter and the wire."""

    def __init__(self, event: str):
        super().__init__()
        self.event = event
        self.reply: Shareable | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.AFTER_TASK_RESULT_FILTER:
            self.reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        if event_type == self.event and self.reply is not None:
            put_back(self.reply)


def assert_nothing_left(reply: Shareable) -> None:
    assert reply.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert set(reply) == {ReservedHeaderKey.HEADERS}
    assert reply.get_cookie("contribution_round") == 0, "the server still learns which task failed"


def test_the_guard_alone_keeps_prototypes_in(tmp_path: Path) -> None:
    site = SiteAtWork(tmp_path, SHARES_NOTHING, TalkativeExecutor(), components=(PolicyGuard(),))
    assert_nothing_left(site.answer())
    assert site.answer("validate").get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert site.answer("submit_model").get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR


def test_a_hostile_filter_beats_the_site_filter_but_not_the_guard(tmp_path: Path) -> None:
    layers = {"site_filters": (PrototypeFilter(),), "job_filters": (PutBack(),)}
    leaking = SiteAtWork(tmp_path / "filter", SHARES_NOTHING, TalkativeExecutor(), **layers)
    assert codec.PROTOTYPES in from_shareable(leaking.answer()).data, "this is why the guard exists"
    site = SiteAtWork(tmp_path / "guard", SHARES_NOTHING, TalkativeExecutor(), components=(PolicyGuard(),), **layers)
    assert_nothing_left(site.answer())


@pytest.mark.parametrize("event", [EventType.AFTER_TASK_RESULT_FILTER, EventType.BEFORE_SEND_TASK_RESULT])
def test_a_hostile_component_does_not_get_past_the_guard(tmp_path: Path, event: str) -> None:
    components = (PutBackLate(event), PolicyGuard())
    site = SiteAtWork(
        tmp_path, SHARES_NOTHING, TalkativeExecutor(), site_filters=(PrototypeFilter(),), components=components
    )
    assert_nothing_left(site.answer())


def test_what_is_allowed_passes_untouched(tmp_path: Path) -> None:
    site = SiteAtWork(tmp_path, SHARES_ALL, TalkativeExecutor(), components=(PolicyGuard(),))
    reply = from_shareable(site.answer())
    assert set(reply.data) == {codec.MODEL, codec.PROTOTYPES, codec.METHOD, codec.SCORES}
    assert reply.data[codec.SCORES].data["confusion"].any()


def test_a_reply_without_anything_forbidden_passes_at_an_opted_out_site(tmp_path: Path) -> None:
    site = SiteAtWork(
        tmp_path, SHARES_NOTHING, TalkativeExecutor(), site_filters=(PrototypeFilter(),), components=(PolicyGuard(),)
    )
    assert set(from_shareable(site.answer()).data) == {codec.MODEL, codec.METHOD}


@pytest.mark.parametrize("site_file", [None, "data: {source: demo, center: 5}\npolicy: {share_prototypes: ja}"])
def test_without_a_valid_policy_the_guard_lets_nothing_out(tmp_path: Path, site_file: str | None) -> None:
    site = SiteAtWork(tmp_path, SHARES_ALL, TalkativeExecutor(), components=(PolicyGuard(),))
    assert site.answer().get_return_code() == ReturnCode.OK
    site.site_file.unlink()
    if site_file:
        site.site_file.write_text(site_file)
    assert_nothing_left(site.answer())


def test_the_executor_itself_makes_no_prototypes_where_none_may_leave(tmp_path: Path) -> None:
    reply = from_shareable(SiteAtWork(tmp_path, SHARES_NOTHING).answer())
    assert set(reply.data) == {codec.MODEL, codec.METHOD}
    assert reply.meta[codec.SCORES] is None


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (ReservedHeaderKey.RC, "MEL=23"),
        (ReservedHeaderKey.CONTENT_TYPE, "MEL=23"),
        (ReservedHeaderKey.TASK_NAME, "MEL=23"),
        (ReservedHeaderKey.COOKIE_JAR, {"contribution_round": 0, "MEL": 23}),
        (ReservedHeaderKey.AUDIT_EVENT_ID, "there are 23 melanomas"),
        (ReservedHeaderKey.MSG_ROOT_TTL, 10**400),
    ],
)
def test_nothing_leaves_in_a_header_of_flares_own(tmp_path: Path, header: str, value: object) -> None:
    class Smuggler(FLComponent):
        def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
            if event_type == EventType.AFTER_TASK_RESULT_FILTER:
                self.reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
            if event_type == EventType.BEFORE_SEND_TASK_RESULT:
                self.reply.set_header(header, value)

    layers = {"site_filters": (PrototypeFilter(),), "components": (Smuggler(), PolicyGuard())}
    reply = SiteAtWork(tmp_path, SHARES_NOTHING, TalkativeExecutor(), **layers).answer()
    assert reply.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert "23" not in repr(reply)


def test_filter_and_guard_let_nothing_out_of_a_job_that_was_not_approved(tmp_path: Path) -> None:
    site_file = "data: {source: demo, center: 5}\npolicy: {share_prototypes: true, approve: each, training: null}\n"
    for number, layers in enumerate(({"components": (PolicyGuard(),)}, {"site_filters": (PrototypeFilter(),)})):
        reply = SiteAtWork(tmp_path / str(number), site_file, TalkativeExecutor(), **layers).answer()
        assert_nothing_left(reply)
