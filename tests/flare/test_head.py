"""The head task through executor, filter and guard: the policy of the prototypes holds for the statistics."""

from pathlib import Path

import pytest
from nvflare.apis.fl_constant import ReturnCode
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from tests.helpers import containers as messages
from tests.helpers.site_at_work import SHARES_ALL, SHARES_NOTHING, SiteAtWork, TalkativeExecutor, full_statistics
from tests.helpers.small import small_job

SHARES_ONE = """
data: {source: demo, center: 5}
policy: {share_prototypes: [NV], min_class_count: 1, share_metrics: per_class, min_cell_count: 1, training: null}
"""
SHARES_SUMS = """
data: {source: demo, center: 5}
policy: {share_prototypes: true, share_scatter: false, min_class_count: 1, min_cell_count: 1, share_metrics: per_class,
  training: null}
"""
LAYERS = {"filter": {"site_filters": (PrototypeFilter(),)}, "guard": {"components": (PolicyGuard(),)}}


@pytest.mark.parametrize("layer", LAYERS)
def test_what_the_policy_allows_passes_unchanged(tmp_path: Path, layer: str) -> None:
    reply = SiteAtWork(tmp_path, SHARES_ALL, TalkativeExecutor(), **LAYERS[layer]).answer("head")
    assert reply.get_return_code() == ReturnCode.OK
    sent = messages.decode_statistics(reply, "x", num_classes=8, feature_size=128)
    assert sent.statistics["kept"]["counts"].tolist() == full_statistics().statistics["kept"]["counts"].tolist()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("policy", [SHARES_NOTHING, SHARES_ONE])
def test_statistics_of_a_class_that_is_withheld_do_not_leave(tmp_path: Path, layer: str, policy: str) -> None:
    reply = SiteAtWork(tmp_path, policy, TalkativeExecutor(), **LAYERS[layer]).answer("head")
    assert reply.get_return_code() != ReturnCode.OK
    nvflare_fobs_initialize()
    assert b"moments" not in fobs.dumps(reply)


def test_an_opted_out_site_answers_with_nothing_in_it(tmp_path: Path) -> None:
    layers = LAYERS["filter"] | LAYERS["guard"]
    reply = SiteAtWork(tmp_path, SHARES_NOTHING, **layers).answer("head")
    assert reply.get_return_code() == ReturnCode.OK
    nvflare_fobs_initialize()
    sent = fobs.dumps(reply)
    assert all(word not in sent for word in (b"moments", b"sums", b"counts"))


def test_a_site_that_shares_one_class_answers_with_that_class(tmp_path: Path) -> None:
    layers = LAYERS["filter"] | LAYERS["guard"]
    reply = SiteAtWork(tmp_path, SHARES_ONE, **layers).answer("head")
    sent = messages.decode_statistics(reply, "x", num_classes=8, feature_size=128)
    assert sent.statistics["kept"]["counts"].nonzero()[0].tolist() == [1]


def test_scatter_that_is_not_shared_does_not_leave_whoever_makes_it(tmp_path: Path) -> None:
    nvflare_fobs_initialize()
    own = SiteAtWork(tmp_path / "own", SHARES_SUMS, **(LAYERS["filter"] | LAYERS["guard"])).answer("head")
    filtered = SiteAtWork(tmp_path / "filter", SHARES_SUMS, TalkativeExecutor(), **LAYERS["filter"]).answer("head")
    for reply in (own, filtered):
        assert reply.get_return_code() == ReturnCode.OK
        assert b"moments" not in fobs.dumps(reply)
        sent = messages.decode_statistics(reply, "x", num_classes=8, feature_size=128)
        assert sent.statistics["means"]["counts"].sum() > 0
    guarded = SiteAtWork(tmp_path / "guard", SHARES_SUMS, TalkativeExecutor(), **LAYERS["guard"]).answer("head")
    assert b"moments" not in fobs.dumps(guarded)


def test_projected_statistics_pass_filter_and_guard(tmp_path: Path) -> None:
    job = small_job(head={"projection": 16})
    fresh = {"site_filters": (PrototypeFilter(),), "components": (PolicyGuard(),)}
    reply = SiteAtWork(tmp_path, SHARES_ALL, job=job, **fresh).answer("head")
    assert reply.get_return_code() == ReturnCode.OK
    assert messages.decode_statistics(reply, "x", num_classes=8, feature_size=16).statistics.keys() >= {"kept"}
