"""The filter alone keeps in what the policy does not let out; it refuses what it cannot read."""

from pathlib import Path

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.flare import messages as wire
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.site.release import released
from fedmr_med.wire import codec
from fedmr_med.wire.codec import Message
from tests.helpers.errors import raises
from tests.helpers.site_at_work import SHARES_ALL, SHARES_NOTHING, SiteAtWork, TalkativeExecutor
from tests.helpers.small import lenient, small_job


def guarded(folder: Path, site_file: str | None, executor: Executor | None = None) -> SiteAtWork:
    return SiteAtWork(folder, site_file, executor or TalkativeExecutor(), site_filters=(PrototypeFilter(),))


def test_without_the_filter_a_talkative_executor_leaks(tmp_path: Path) -> None:
    site = SiteAtWork(tmp_path, SHARES_NOTHING, TalkativeExecutor())
    reply = from_shareable(site.answer())
    assert reply.data[codec.PROTOTYPES].data["sums"].any()
    assert reply.data[codec.SCORES].data["confusion"].any()


def test_the_filter_alone_keeps_prototypes_and_metrics_in(tmp_path: Path) -> None:
    site = guarded(tmp_path, SHARES_NOTHING)
    reply = from_shareable(site.answer())
    assert set(reply.data) == {codec.MODEL, codec.METHOD}
    assert reply.meta[codec.SCORES] is None
    assert reply.meta[codec.REPORT] is None
    assert reply.meta[codec.SAMPLES] > 0, "the model update itself takes part"
    scores = from_shareable(site.answer("validate"))
    assert scores.data == {codec.SCORES: None}


def test_per_class_sharing_and_scalar_metrics(tmp_path: Path) -> None:
    counts = "min_class_count: 5, min_cell_count: 1"
    policy = f"policy: {{share_prototypes: [NV, DF], {counts}, share_metrics: scalar, training: null}}"
    site = guarded(tmp_path, f"data: {{source: demo, center: 5}}\n{policy}\n")
    reply = from_shareable(site.answer())
    names = [site.job.task.class_names[i] for i in reply.data[codec.PROTOTYPES].data["counts"].nonzero()[0]]
    assert names == ["NV"], "the site holds fewer than five DF"
    assert codec.SCORES not in reply.data
    assert reply.meta[codec.SCORES]["accuracy"] >= 0


def test_what_is_allowed_passes_unchanged(tmp_path: Path) -> None:
    bare = from_shareable(SiteAtWork(tmp_path / "a", SHARES_ALL).answer())
    kept = from_shareable(SiteAtWork(tmp_path / "b", SHARES_ALL, site_filters=(PrototypeFilter(),)).answer())
    for name in (codec.MODEL, codec.PROTOTYPES, codec.METHOD):
        for key, array in bare.data[name].data.items():
            assert np.array_equal(array, kept.data[name].data[key])
    assert bare.meta[codec.SCORES] == kept.meta[codec.SCORES]


@pytest.mark.parametrize(
    "site_file",
    [
        None,
        "",
        "data: {source: demo, center: 5}\npolicy: {share_prototypes: true, share_everything: true}",
        "data: {source: demo, center: 5}\npolicy: {share_prototypes: maybe}",
        "data: {source: demo, center: 5}\npolicy: [share_prototypes",
        "data: {source: demo, center: 5}\nploicy: {share_prototypes: true}",
    ],
    ids=["missing", "empty", "unknown key", "bad value", "not yaml", "typo in policy"],
)
def test_no_valid_policy_shares_nothing(tmp_path: Path, site_file: str | None) -> None:
    site = guarded(tmp_path, SHARES_ALL)
    assert site.answer().get_return_code() == ReturnCode.OK
    if site_file is None:
        site.site_file.unlink()
    else:
        site.site_file.write_text(site_file)
    reply = site.answer()
    assert reply.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert "DXO" not in reply


class Smuggler(TalkativeExecutor):
    """Hides something in an otherwise honest reply."""

    def __init__(self, place: str):
        super().__init__()
        self.place = place

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        reply = super().execute(task_name, shareable, fl_ctx, abort_signal)
        secret = np.full((8, 4), 7.0, dtype=np.float32)
        dxo = from_shareable(reply)  # its dictionaries are the cached reply's: change copies
        dxo.data = {name: DXO(part.data_kind, dict(part.data)) for name, part in dxo.data.items()}
        model, method = dxo.data[codec.MODEL].data, dxo.data[codec.METHOD].data
        if self.place == "model":
            model["secret"] = secret
        elif self.place == "shape":
            name = next(iter(model))
            model[name] = np.concatenate([model[name], model[name]])
        elif self.place == "payload":
            method["secret"] = secret
        elif self.place == "part":
            dxo.data["secret"] = DXO(DataKind.APP_DEFINED, data={"x": secret})
        elif self.place == "report":
            dxo.meta[codec.REPORT] = {"terms": {str(i): float(v) for i, v in enumerate(secret.flat)}}
        elif self.place == "kind":
            return DXO(DataKind.WEIGHTS, data={"secret": secret}).to_shareable()
        elif self.place == "no dxo":
            return Shareable({"secret": secret})
        return dxo.to_shareable()


@pytest.mark.parametrize("place", ["model", "shape", "payload", "part", "report", "kind", "no dxo"])
def test_the_unexpected_is_refused_whole(tmp_path: Path, place: str) -> None:
    reply = guarded(tmp_path, SHARES_ALL, Smuggler(place)).answer()
    assert reply.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert "DXO" not in reply
    assert "secret" not in reply


class Header(TalkativeExecutor):
    """Hides something beside the DXO."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        reply = super().execute(task_name, shareable, fl_ctx, abort_signal)
        reply["secret"] = np.ones(4)
        reply.set_header("secret", [1.0, 2.0])
        reply["DXO"]["meta"]["secret"] = [1.0, 2.0]
        reply["DXO"]["data"][codec.MODEL].meta["secret"] = [1.0, 2.0]
        return reply


def test_what_travels_beside_the_agreed_parts_is_left_behind(tmp_path: Path) -> None:
    reply = guarded(tmp_path, SHARES_ALL, Header()).answer()
    assert reply.get_return_code() == ReturnCode.OK
    assert "secret" not in str(reply)


def test_local_models_stay_unless_the_site_allows_them(tmp_path: Path) -> None:
    assert guarded(tmp_path / "a", SHARES_ALL).answer("submit_model").get_return_code() != ReturnCode.OK
    allowed = "data: {source: demo, center: 5}\npolicy: {allow_submit_model: true, training: null}"
    assert guarded(tmp_path / "b", allowed).answer("submit_model").get_return_code() != ReturnCode.OK, "nobody asks"
    job = small_job(policy={"allow_submit_model": True})
    site = SiteAtWork(tmp_path / "c", allowed, TalkativeExecutor(), site_filters=(PrototypeFilter(),), job=job)
    answer = wire.to_message(site.answer("submit_model"), "submit_model")
    assert answer.parts[codec.MODEL].keys() == site.state().model.keys()


def test_a_job_that_sums_models_gets_no_local_model_on_request(tmp_path: Path) -> None:
    policy = "data: {source: demo, center: 5}\npolicy: {allow_submit_model: true, training: null}"
    job = small_job(federation={"min_sites": 3, "secure": "all"})
    site = SiteAtWork(tmp_path, policy, job=job, site_filters=(PrototypeFilter(),))
    site.answer()
    assert site.answer("submit_model").get_return_code() != ReturnCode.OK
    model = Message({codec.MODEL: dict(site.state().model)})
    with raises("policy.task-refused"):
        released("submit_model", model, lenient(allow_submit_model=True), reply_form(job))
