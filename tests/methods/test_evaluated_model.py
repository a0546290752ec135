"""FedDyn and FedDC are scored, kept and handed out by the mean of the participants' models."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.arrays import Arrays
from fedmr_med.evaluation.metrics import confusion_matrix, scores
from fedmr_med.lab.bench.request import BenchRequest
from fedmr_med.models import load_arrays
from fedmr_med.models.model_file import load_model
from fedmr_med.server.chain import BEST_MODEL, CHECKPOINT
from fedmr_med.site.training import outputs
from tests.helpers.benchmarks import tiny_federation, tiny_job
from tests.helpers.errors import raises
from tests.helpers.methods import CLASSES, Federation, WithBatchNorm, job

BOTH = ("feddyn", "feddc")


def same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", BOTH)
def test_the_mean_of_the_participants_is_unweighted_and_not_what_training_goes_on_from(
    name: str, tmp_path: Path
) -> None:
    federation = Federation(job(name, alpha=0.1), tmp_path, WithBatchNorm)
    federation.round()
    replies = federation.round("ac")
    state = federation.state
    assert state.averaged.keys() == state.parameters
    for key, mean in state.averaged.items():
        np.testing.assert_allclose(mean, np.mean([reply.model[key] for reply in replies], axis=0), atol=1e-6)
    assert any(not np.allclose(state.averaged[key], state.model[key]) for key in state.parameters)
    assert same(state.leaving().model, state.model | state.averaged)
    assert federation.task().model is state.model


@pytest.mark.parametrize("name", BOTH)
def test_the_global_model_is_scored_if_asked_for(name: str, tmp_path: Path) -> None:
    federation = Federation(job(name, alpha=0.1, evaluate="global"), tmp_path, WithBatchNorm)
    federation.round()
    assert federation.state.averaged == {}
    assert federation.state.leaving() is federation.state
    request = BenchRequest(dataset="fmnist", methods=(name,), settings={"evaluate": "global"})
    assert [run.label for run in request.runs()] == [f"{name} (global model)"]


def test_which_model_is_scored_changes_nothing_in_training(tmp_path: Path) -> None:
    states = []
    for evaluated in ("mean", "global"):
        federation = Federation(job("feddyn", alpha=0.1, evaluate=evaluated), tmp_path / evaluated, WithBatchNorm)
        for _ in range(3):
            federation.round()
        states.append(federation.state)
    assert same(states[0].model, states[1].model)
    assert same(states[0].method, states[1].method)


def test_a_site_scores_the_mean_and_trains_from_the_global_model(tmp_path: Path) -> None:
    federation = Federation(job("feddyn", alpha=0.1), tmp_path, WithBatchNorm)
    for _ in range(2):
        federation.round()
    site, task = federation.sites["c"], federation.task()
    load_arrays(site.network, federation.state.leaving().model)
    logits, labels = outputs(site.network, site.batches.test)
    expected = scores(confusion_matrix(labels, logits.argmax(1), CLASSES))
    reply, plain = site.train(task), site.train(replace(task, averaged={}))
    assert reply.scores is not None
    assert np.array_equal(reply.scores.confusion, expected.confusion)
    assert same(reply.model, plain.model)
    with raises("wire.not-finite", "averaged model"):
        site.train(replace(task, averaged=task.averaged | {"conv.weight": task.model["conv.weight"] * np.nan}))
    with raises("wire.form", "averaged"):
        site.train(replace(task, averaged={"conv.weight": task.model["conv.weight"]}))


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH)
def test_scores_best_model_and_what_a_checkpoint_hands_out_are_those_of_the_mean(
    name: str, fmnist: Path, tmp_path: Path
) -> None:
    config = tiny_job(name, changes={"alpha": 0.1, "head.exchange": "last"})
    states = {}
    central = tiny_federation(config, fmnist, tmp_path / "central")
    final = central.run(lambda state: states.update({state.round: state}))
    local = tiny_federation(config, fmnist, tmp_path / "local", central=False).run()
    pooled = {e.round: e.pooled for e in local.history.evaluations}
    assert {e.round: e.pooled for e in final.history.evaluations} == {number: pooled[number] for number in (1, 2, 3)}
    assert same(load_model(tmp_path / "central" / CHECKPOINT).model, final.leaving().model)
    assert not same(final.leaving().model, final.model)
    best = final.history.best
    assert best is not None
    kept = load_model(tmp_path / "central" / BEST_MODEL).model
    expected = states[best.round].leaving().model | (final.head if best.head else {})
    assert same(kept, expected)
    down = [record.sites["client-1"].bytes_down for record in local.history.rounds]
    assert down[1] > down[0], "the mean goes to sites that score it"
    assert final.history.rounds[1].sites["client-1"].bytes_down < down[1], "and to nobody else"
