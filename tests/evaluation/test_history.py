"""Which model a chain keeps, and what is said of it."""

import numpy as np
import pytest

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import Scores, scores
from fedmr_med.evaluation.records import HeadRecord, RoundRecord
from fedmr_med.evaluation.score import Evaluation, Score

NAMES = ("MEL", "NV", "BCC")


def right_on(*counts: int, images: int = 20) -> Scores:
    """Return the scores of a model that is right on so many of the images of each class; 0 images for a negative."""
    confusion = np.zeros((len(counts), len(counts)), dtype=np.int64)
    for label, right in enumerate(counts):
        if right >= 0:
            confusion[label, label] = right
            confusion[label, (label + 1) % len(counts)] = images - right
    return scores(confusion)


def chain(*answers: dict[str, Scores | None]) -> History:
    """Return a chain whose sites score the model after 0, 1, ... rounds; the last one after its last round."""
    history = History()
    for number, answer in enumerate(answers):
        if number:
            history = history.with_round(RoundRecord(round=number, sites={}))
        history = history.with_evaluation(Evaluation.of(number, answer))
    return history


def head(evaluation: Evaluation | None = None, round_number: int = 2) -> HeadRecord:
    return HeadRecord(
        round=round_number, shrinkage=None, prior="uniform", sites=(), classes=(), bytes_up=0, evaluation=evaluation
    )


def test_a_score_over_one_class_is_no_score() -> None:
    score = Score.of(right_on(-1, 20, -1))
    assert (score.accuracy, score.mean_recall, score.balanced_accuracy) == (None, None, None)
    assert score.recall == (None, 1.0, None)
    assert score.text() == "no score, 1 of 3 classes"
    assert score.cell() == "-"


def test_a_mean_over_some_classes_is_not_called_balanced_accuracy() -> None:
    score = Score.of(right_on(20, 10, -1))
    assert (score.mean_recall, score.balanced_accuracy, score.classes) == (0.75, None, 2)
    assert score.text() == "mean recall 0.750 over 2 of 3 classes"
    whole = Score.of(right_on(20, 10, 0))
    assert whole.balanced_accuracy == whole.mean_recall == 0.5
    assert whole.text() == "balanced accuracy 0.500"


def test_scores_of_an_earlier_version_are_read_by_their_right_name() -> None:
    old = {"accuracy": 1.0, "balanced_accuracy": 1.0, "samples": 24, "recall": [None, 1.0, None]}
    assert Score.model_validate(old).balanced_accuracy is None
    assert Score.model_validate(old).accuracy is None
    whole = Score.model_validate(old | {"balanced_accuracy": 0.5, "recall": [0.5, 0.5, 0.5]})
    assert whole.balanced_accuracy == 0.5
    assert Score.model_validate_json(whole.model_dump_json()) == whole


def test_the_best_model_is_the_one_with_the_highest_score_on_a_full_pool() -> None:
    history = chain({"a": right_on(0, 20, 0)}, {"a": right_on(20, 20, 5)}, {"a": right_on(20, 10, 5)})
    assert (history.best.round, history.best.balanced_accuracy) == (1, 0.75)
    assert history.why_last(NAMES) is None


@pytest.mark.parametrize(
    "answer",
    [{"a": right_on(-1, 20, -1), "b": right_on(-1, 20, -1)}, {"a": right_on(10, 20, -1), "b": None}, {"a": None}],
)
def test_without_a_full_pool_the_last_model_is_kept_and_the_reason_said(answer: dict[str, Scores | None]) -> None:
    history = chain(answer, answer, answer)
    assert (history.best.round, history.best.balanced_accuracy) == (2, None)
    said = history.why_last(NAMES)
    assert "the last one is kept" in said
    if history.evaluations[-1].pooled is not None:
        assert "BCC" in said and history.evaluations[-1].coverage in said


def test_the_coverage_names_classes_and_sites() -> None:
    evaluation = Evaluation.of(0, {"a": right_on(-1, 20, -1), "b": None})
    assert evaluation.coverage == "1 of 3 classes, 1 of 2 sites"


def test_models_are_compared_on_one_pool_only() -> None:
    """The first model was better, but on the images of one site; then another site came."""
    one, both = {"a": right_on(20, 20, 20)}, {"a": right_on(5, 5, 5), "b": right_on(5, 5, 5)}
    history = chain(one, one, both, both)
    assert (history.best.round, history.best.since) == (2, 2)
    assert "from round 2 on" in str(history.why_last(NAMES))
    more = chain({"a": right_on(20, 20, 20)}, {"a": right_on(5, 5, 5, images=21)}).best
    assert more.round == 1


def test_a_chain_that_nobody_scores_keeps_its_last_model() -> None:
    history = History().with_round(RoundRecord(round=1, sites={})).with_round(RoundRecord(round=2, sites={}))
    assert history.best.round == 2
    assert history.best_evaluation is None
    assert "No site shares" in str(history.why_last(NAMES))


def test_a_head_is_compared_where_it_can_be() -> None:
    history = chain({"a": right_on(5, 5, 5)}, {"a": right_on(10, 10, 10)})
    better = head(Evaluation.of(1, {"a": right_on(20, 20, 20)}), 1)
    best = history.with_head(head(None, 1)).with_head(better).best
    assert (best.head, best.balanced_accuracy) == (True, 1.0)
    elsewhere = head(Evaluation.of(1, {"b": right_on(20, 20, 20)}), 1)
    assert history.with_head(elsewhere).best == history.best


@pytest.mark.parametrize(("whole", "rounds", "kept"), [(True, 2, True), (False, 2, False), (False, 0, True)])
def test_a_head_that_nobody_can_compare_is_kept_if_it_knows_all_classes(whole: bool, rounds: int, kept: bool) -> None:
    """Or where nothing else of the classifier was trained."""
    silent = {"a": right_on(-1, 20, -1)}
    history = chain(*[silent] * (rounds + 1)) if rounds else History()
    made = history.with_head(head(None, rounds), whole=whole)
    assert (made.best.head, made.best.round) == (kept, rounds)
    scored = made.with_head(head(Evaluation.of(rounds, silent), rounds))
    assert scored.best == made.best


def test_after_a_head_the_next_round_is_kept_without_it() -> None:
    history = History().with_round(RoundRecord(round=1, sites={})).with_head(head(None, 1))
    assert history.best.head
    after = history.with_round(RoundRecord(round=2, sites={})).best
    assert (after.round, after.head) == (2, False)
