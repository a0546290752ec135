"""A head exchange with real sites: equal to pooled data, whoever holds what, and silent where the policy is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.config import JobConfig
from fedmr_med.exchange.head import HeadExchange
from fedmr_med.exchange.plan import due, plan
from fedmr_med.models import load_arrays
from fedmr_med.models.model_file import load_model
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.runner import Federation
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.state import BIAS, WEIGHT, GlobalState
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.statistics.base import Origin
from fedmr_med.statistics.fields import add
from fedmr_med.statistics.head import HeadStatistics, projection, solve
from fedmr_med.statistics.moments import KEPT
from fedmr_med.wire.codec import encode_reply
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, OPEN, initial_state, lenient, small_hospital, small_job, task_for

SITES = ("bcn", "msk", "vienna-dias")
JOB = small_job(head={"shrinkage": 0.1})


@pytest.fixture(scope="module")
def state() -> GlobalState:
    return initial_state(JOB)


@pytest.fixture(scope="module")
def replies(state: GlobalState, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SiteReply]:
    folder: Path = tmp_path_factory.mktemp("sites")
    return {name: small_hospital(name, JOB, folder).head_statistics(task_for(state, JOB)) for name in SITES}


def closed(state: GlobalState, replies: dict[str, SiteReply], job: JobConfig = JOB) -> GlobalState:
    collector = HeadExchange(job, state)
    for site, reply in replies.items():
        collector.offer(site, encode_reply(HEAD, reply))
    return collector.close()


def test_the_head_is_that_of_pooled_features(state: GlobalState, replies: dict[str, SiteReply], tmp_path: Path) -> None:
    features, labels = [], []
    for name in SITES:
        site = small_hospital(name, JOB, tmp_path)
        load_arrays(site.network, state.model)
        site.network.eval()
        shared = torch.from_numpy(OPEN.shareable_classes(site.counts, JOB.task.class_names))
        with torch.no_grad():
            for images, y in site.batches.plain.epoch("test", shuffle=False):
                features.append(site.network(images)[0][shared[y]])
                labels.append(y[shared[y]])
    pooled = HeadStatistics.from_features(torch.cat(features), torch.cat(labels), 8)
    expected = solve(pooled, 0.1)
    made = closed(state, replies)
    scale = float(expected.weight.abs().max())
    np.testing.assert_allclose(made.head[WEIGHT], expected.weight.numpy(), rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(made.head[BIAS], expected.bias.numpy(), rtol=1e-6, atol=1e-6 * scale)


def test_the_order_of_arrival_changes_nothing_and_the_model_stays(
    state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    one, other = closed(state, replies), closed(state, dict(reversed(replies.items())))
    assert np.array_equal(one.head[WEIGHT], other.head[WEIGHT])
    assert one.model is state.model, "the head is never fed back into training"
    assert np.array_equal(one.with_head().model[WEIGHT], one.head[WEIGHT])
    assert one.history.head.sites == SITES


def test_an_opted_out_site_makes_and_sends_nothing(
    state: GlobalState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("statistics were made at a site that shares none")

    monkeypatch.setattr("fedmr_med.site.training_sums.head_statistics", fail)
    reply = small_hospital("msk", JOB, tmp_path, CLOSED).head_statistics(task_for(state, JOB))
    message = encode_reply(HEAD, reply)
    assert message.parts == {}
    assert closed(state, {"msk": reply}) is state


def test_a_head_that_cannot_be_solved_for_leaves_the_run_as_it_was_and_says_so(
    state: GlobalState, replies: dict[str, SiteReply], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise torch.linalg.LinAlgError("linalg.eigh: the algorithm failed to converge")

    with monkeypatch.context() as broken:
        broken.setattr(torch.linalg, "eigh", fail)
        headless = closed(state, replies)
    assert headless.model is state.model
    assert headless.history.head is None
    assert "failed to converge" in headless.history.no_head
    assert closed(headless, replies).history.no_head is None, "a later exchange can have more luck"


def test_a_class_below_the_minimum_takes_no_part(state: GlobalState, tmp_path: Path) -> None:
    policy = lenient(share_prototypes=True, min_class_count=20, share_metrics="per_class")
    site = small_hospital("rosendahl", JOB, tmp_path, policy)
    reply = site.head_statistics(task_for(state, JOB))
    total = sum(part["counts"] for part in reply.statistics.values())
    assert total.tolist() == np.where(site.counts >= 20, site.counts, 0).tolist()
    assert 0 < (total > 0).sum() < (site.counts > 0).sum()
    for part in reply.statistics.values():
        assert not ((part["counts"] > 0) & (part["counts"] < 20)).any(), "a part of a class leaves on its own"


def test_without_scatter_the_nearest_class_mean_wins(
    state: GlobalState, replies: dict[str, SiteReply], tmp_path: Path
) -> None:
    policy = lenient(share_prototypes=True, share_scatter=False)
    task = task_for(state, JOB)
    sums = {name: small_hospital(name, JOB, tmp_path, policy).head_statistics(task) for name in SITES}
    for reply in sums.values():
        assert {name: part.keys() for name, part in reply.statistics.items()} == {"means": {"counts", "sums"}}
    made = closed(state, sums)
    assert made.history.head.shrinkage is None
    total = add(*(reply.statistics["means"] for reply in sums.values()))
    means = total["sums"] / np.maximum(total["counts"], 1)[:, None]
    np.testing.assert_allclose(made.head[WEIGHT], means, rtol=1e-6)
    # One site that shares it is enough for the covariance; the others count in the means.
    assert closed(state, sums | {"bcn": replies["bcn"]}).history.head.shrinkage == 0.1


@pytest.mark.parametrize("size", [16, 10_000])
def test_projected_statistics_give_the_head_of_projected_features(
    state: GlobalState, tmp_path: Path, size: int
) -> None:
    job = JOB.override({"head": {"projection": size}})
    replies = {
        name: small_hospital(name, job, tmp_path).head_statistics(task_for(state, job)) for name in ("bcn", "rosendahl")
    }
    whole = {name: small_hospital(name, JOB, tmp_path).head_statistics(task_for(state, JOB)) for name in replies}
    made = closed(state, replies, job)
    directions = projection(job.seed, 128, size)
    if directions is None:
        assert np.array_equal(made.head[WEIGHT], closed(state, whole).head[WEIGHT])
        return
    torch.testing.assert_close(directions @ directions.T, torch.eye(size, dtype=torch.float64))
    parts = [part for reply in whole.values() for part in reply.statistics.values()]
    pooled = KEPT.read(add(*parts), Origin(len(parts)))
    assert pooled is not None
    small = ClassSums(pooled.sums.sums @ directions.T, pooled.sums.counts)
    expected = solve(HeadStatistics(small, small, directions @ pooled.scatter @ directions.T), 0.1)
    weight = (expected.weight @ directions).numpy()
    np.testing.assert_allclose(made.head[WEIGHT], weight, rtol=0, atol=1e-6 * np.abs(weight).max())
    sent = [sum(encode_reply(HEAD, reply).size for reply in answers.values()) for answers in (replies, whole)]
    assert sent[0] < sent[1] / 20


def test_answers_for_another_model_and_second_ones_are_refused(
    state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    collector = HeadExchange(JOB, state)
    with raises("wire.round", "statistics"):
        collector.offer("bcn", encode_reply(HEAD, replace(replies["bcn"], round=3)))
    collector.offer("bcn", encode_reply(HEAD, replies["bcn"]))
    with raises("wire.duplicate"):
        collector.offer("bcn", encode_reply(HEAD, replies["bcn"]))
    assert collector.status()[0] == ["bcn"]


def changed(reply: SiteReply, **change: Callable[[np.ndarray], np.ndarray]) -> SiteReply:
    kept = {name: change.get(name, np.copy)(array) for name, array in reply.statistics["kept"].items()}
    return replace(reply, statistics=dict(reply.statistics) | {"kept": kept})


def scaled(reply: SiteReply, factor: float) -> SiteReply:
    return changed(reply, sums=lambda sums: factor * sums, moments=lambda moments: factor**2 * moments)


def test_statistics_out_of_all_proportion_do_not_count(state: GlobalState, replies: dict[str, SiteReply]) -> None:
    others = {f"like {site}": reply for site, reply in replies.items()}
    good = closed(state, others)
    for factor in (1e3, 1e8):
        made = closed(state, others | {"odd": scaled(replies["bcn"], factor)})
        assert np.array_equal(made.head[WEIGHT], good.head[WEIGHT])
        assert "odd" not in made.history.head.sites
    with raises("wire.norm", "statistics"):
        closed(state, {"odd": scaled(replies["bcn"], 1e20)})


def test_features_that_collapsed_to_points_give_no_head(state: GlobalState, replies: dict[str, SiteReply]) -> None:
    """Their scatter is rounding alone, and its inverse without bound: sites would refuse the head and stop the job."""
    kept = KEPT.read(replies["bcn"].statistics["kept"])
    assert kept is not None
    collapsed = KEPT.values(replace(kept, scatter=1e-16 * kept.scatter))
    assert closed(state, replies).head
    assert closed(state, {"bcn": replace(replies["bcn"], statistics={"kept": collapsed})}) is state


def test_when_an_exchange_is_due(state: GlobalState) -> None:
    job = small_job(federation={"rounds": 6})
    rounds: dict[str | int, list[int]] = {}
    for exchange in ("none", "last", 2, 4):
        asked = job.override({"head": {"exchange": exchange}})
        heads = [step for step in plan(asked) if step.kind == HEAD]
        rounds[exchange] = [r for r in range(1, 7) if any(s.round == r or (s.round is None and r == 6) for s in heads)]
        assert all(due(step, asked, replace(state, round=step.round or 6)) for step in heads)
    assert rounds == {"none": [], "last": [6], 2: [2, 4, 6], 4: [4, 6]}


def sites(policy: SitePolicy) -> dict[str, SiteConfig]:
    return {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=policy)
        for name, center in (("bcn", 0), ("rosendahl", 3))
    }


def test_the_head_leaves_with_the_best_model(tmp_path: Path) -> None:
    policy = lenient(share_prototypes=True, min_class_count=1, share_metrics="per_class")
    state = Federation(small_job(), sites(policy), tmp_path).run()
    record = state.history.head
    assert record.round == 2
    assert record.evaluation.pooled.balanced_accuracy > state.history.evaluations[-1].pooled.balanced_accuracy
    assert state.history.best.head
    saved = load_model(tmp_path / BEST_MODEL)
    assert np.array_equal(saved.model[WEIGHT], state.head[WEIGHT])
    assert not np.array_equal(saved.model[WEIGHT], state.model[WEIGHT])
    assert saved.about["closed_form_head"] is True


@pytest.mark.slow
def test_a_run_that_was_stopped_before_its_head_makes_it_on_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = lenient(share_prototypes=True, min_class_count=1, share_metrics="per_class")
    whole = Federation(small_job(), sites(policy), tmp_path / "whole").run()

    def stop(self: object, task: TrainTask) -> SiteReply:
        raise KeyboardInterrupt

    stopped = Federation(small_job(), sites(policy), tmp_path / "stopped")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("fedmr_med.site.hospital.Hospital.head_statistics", stop)
        stopped.run()
    resumed = Federation(small_job(), sites(policy), tmp_path / "stopped").run()
    assert np.array_equal(resumed.head[WEIGHT], whole.head[WEIGHT])
    assert all(np.array_equal(resumed.model[name], whole.model[name]) for name in whole.model)


def test_without_sharing_there_is_no_head(tmp_path: Path) -> None:
    state = Federation(small_job(), sites(lenient(share_metrics="per_class")), tmp_path).run()
    assert state.head == {}
    assert state.history.head is None
