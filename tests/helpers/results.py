"""Entries of results.json for tests."""

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord, SiteRound
from fedmr_med.evaluation.results import RunResult, RunSetup
from fedmr_med.evaluation.score import Evaluation, Score


def whole_score(accuracy: float, balanced: float, samples: int = 10) -> Score:
    """Return a score of two classes, both of which count."""
    return Score(
        accuracy=accuracy,
        balanced_accuracy=balanced,
        mean_recall=balanced,
        classes=2,
        samples=samples,
        recall=(balanced, balanced),
    )


def run_of(*accuracies: float | None, label: str = "a", seed: int = 0, seconds: float = 2.0) -> RunResult:
    """Return a run of these accuracies by round; the balanced ones are 0.1 lower. Its one site has 1 MB up, 2 down."""
    setup = RunSetup(dataset="fmnist", split="P5C2", method="fedavg", label=label, seed=seed)
    history = History()
    for number, accuracy in enumerate(accuracies, start=1):
        site = SiteRound(samples=9, shared_classes=(), bytes_up=10**6, bytes_down=2 * 10**6)
        history = history.with_round(RoundRecord(round=number, sites={"site-1": site}, seconds=seconds))
        if accuracy is not None:
            score = whole_score(accuracy, accuracy - 0.1)
            evaluation = Evaluation(round=number, sites={}, pooled=score, pooled_sites=("site-1",))
            history = history.with_evaluation(evaluation)
    return RunResult.of(setup, history)
