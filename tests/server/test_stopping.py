"""When a chain ends before its last round: the rule, and the runner that follows it."""

from pathlib import Path

import pytest

from fedmr_med.config import StopConfig
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord
from fedmr_med.evaluation.score import Evaluation, Score
from fedmr_med.server.stopping import stop_reason, why_it_cannot
from tests.helpers.archives import write_mini
from tests.helpers.benchmarks import tiny_federation, tiny_job
from tests.helpers.errors import raises
from tests.helpers.results import whole_score


def history(*scores: float | None) -> History:
    """Return a history in which the model after 0, 1, ... rounds has these scores, the last round's included."""
    rounds = tuple(RoundRecord(round=number, sites={}) for number in range(1, len(scores)))
    evaluations = tuple(
        Evaluation(round=number, sites={}, pooled=pooled(score), pooled_sites=()) for number, score in enumerate(scores)
    )
    return History(rounds=rounds, evaluations=evaluations)


def pooled(score: float | None) -> Score | None:
    return None if score is None else whole_score(1 - score, score)


def test_without_settings_nothing_stops() -> None:
    assert stop_reason(None, history(0.5, 1.0, 1.0, 1.0)) is None


@pytest.mark.parametrize(
    ("condition", "stops"),
    [
        ("balanced_accuracy >= 0.8", True),
        ("balanced_accuracy > 0.8", False),
        ("accuracy >= .5", False),
        ("accuracy>0.1", True),
    ],
)
def test_a_condition_stops_as_soon_as_a_round_that_was_scored_fulfils_it(condition: str, stops: bool) -> None:
    reason = stop_reason(StopConfig(condition=condition), history(0.9, 0.8, 0.7))
    assert (reason is not None) is stops
    assert reason is None or ("round 1" in reason and condition in reason)


def test_patience_counts_the_rounds_since_the_last_better_model() -> None:
    stop = StopConfig(patience=2)
    assert stop_reason(stop, history(0.1, 0.5, 0.4, 0.6, 0.6, 0.9)) is None
    assert stop_reason(stop, history(0.1, 0.5, 0.4, 0.6, 0.6, 0.5, 0.9)) == (
        "2 rounds brought no better balanced_accuracy than 0.600"
    )


def test_the_last_model_changes_nothing_so_a_stopped_chain_stays_stopped() -> None:
    """It is scored once the chain has stopped: a resumption must come to the same answer."""
    stop = StopConfig(patience=1)
    for last in (None, 0.1, 0.99):
        assert stop_reason(stop, history(0.1, 0.5, 0.5, last)) is not None


def test_models_that_nobody_scored_and_the_untrained_one_do_not_count() -> None:
    assert stop_reason(StopConfig(patience=1), history(0.9, 0.5, None, 0.6)) is None
    assert stop_reason(StopConfig(condition="accuracy >= 0"), history(0.9, None, None)) is None


def test_patience_begins_anew_where_other_sites_score() -> None:
    known = history(0.1, 0.5, 0.9, 0.8, 0.7)
    other = known.evaluations[3].model_copy(update={"pooled_sites": ("b",)})
    changed = known.model_copy(update={"evaluations": (*known.evaluations[:3], other, known.evaluations[4])})
    assert stop_reason(StopConfig(patience=1), known) is not None
    assert stop_reason(StopConfig(patience=1), changed) is None


def test_a_rule_that_cannot_act_says_so() -> None:
    stop = StopConfig(patience=1)
    assert why_it_cannot(stop, history(0.1, 0.5, 0.4)) is None
    assert why_it_cannot(None, history(0.1, None, None)) is None
    assert why_it_cannot(stop, history(0.1, None, None)) is not None
    assert why_it_cannot(stop, history(0.1, 0.5, None, 0.4)) is not None, "the last model that it looks at counts"
    partial = Score(accuracy=0.9, samples=20, recall=(0.9, 0.9, None))
    unequal = history(0.1, 0.5, 0.4)
    some = unequal.evaluations[1].model_copy(update={"pooled": partial, "pooled_sites": ("a",)})
    unequal = unequal.model_copy(update={"evaluations": (unequal.evaluations[0], some)})
    assert stop_reason(StopConfig(condition="accuracy >= 0"), unequal) is None
    assert "2 of 3 classes" in str(why_it_cannot(stop, unequal))


@pytest.mark.parametrize(
    ("stop", "code", "key"),
    [
        ({}, "config.missing", "condition"),
        ({"condition": "accuracy >= 80"}, "config.value", "condition"),
        ({"condition": "loss <= 0.1"}, "config.value", "condition"),
        ({"patience": 0}, "config.greater-than-equal", "patience"),
    ],
)
def test_settings_that_say_nothing_are_refused(stop: dict[str, object], code: str, key: str) -> None:
    with raises(code, f"federation.stop.{key}"):
        tiny_job(changes={"federation.stop": stop})


@pytest.mark.slow
def test_a_run_stops_and_a_resumption_adds_no_round(tmp_path: Path) -> None:
    write_mini("fmnist", tmp_path / "data", per_class=20, test_per_class=4)
    still = {"train.lr": 0.0, "federation.rounds": 9}
    job = tiny_job("fedavg", changes={**still, "federation.stop": {"patience": 2}})
    for central in (True, False):
        folder = tmp_path / str(central)
        state = tiny_federation(job, tmp_path / "data", folder, central=central).run()
        assert state.round == 4, "the first model is the best, and the rule knows two more after the fourth round"
        assert state.history.evaluations[-1].round == 4, "the final model is scored"
        again = tiny_federation(job, tmp_path / "data", folder, central=central)
        assert (again.run().round, again.costs.tasks) == (4, 0)
    on = tiny_job("fedavg", changes=still | {"federation.rounds": 5})
    assert tiny_federation(on, tmp_path / "data", folder, central=False).run().round == 5, "without it, it goes on"
