"""When a chain ends: after its last round, or before where its settings say so. One rule for controller and runner.

A round scores the model it starts from. So the rule looks at the models of all rounds but the last one, whether or not
that one has been scored: the answer is the same in a FLARE job, in the runner, and after a resumption.
"""

from fedmr_med.config import JobConfig, Metric, StopConfig
from fedmr_med.evaluation.history import History
from fedmr_med.server.state import GlobalState


def has_ended(job: JobConfig, state: GlobalState) -> bool:
    """Whether no further round is to be run."""
    return state.round >= job.federation.rounds or stop_reason(job.federation.stop, state.history) is not None


def stop_reason(stop: StopConfig | None, history: History) -> str | None:
    """Say why a chain ends before its last round; None if it does not.

    The untrained model does not count, and neither does a model that no site which shares per-class scores has scored.

    Args:
        stop: when to end; None never does.
        history: rounds and scores so far.
    """
    if stop is None:
        return None
    if stop.goal is not None:
        metric, sign, value = stop.goal
        reached = [
            (round_number, score)
            for round_number, score in _scores(history, metric)
            if score > value or (sign == ">=" and score == value)
        ]
        if reached:
            return f"the model of round {reached[0][0]} has {metric} {reached[0][1]:.3f}: {stop.condition}"
    if stop.patience is not None:
        best, waited = 0.0, 0
        for _, score in _scores(history, stop.metric):
            best, waited = (score, 0) if score > best else (best, waited + 1)
            if waited >= stop.patience:
                return f"{waited} rounds brought no better {stop.metric} than {best:.3f}"
    return None


def _scores(history: History, metric: Metric) -> list[tuple[int, float]]:
    """Return rounds done and pooled score of the models that count, first to last."""
    done = history.rounds[-1].round if history.rounds else 0
    scored = {e.round: e.pooled for e in history.evaluations if e.pooled and 1 <= e.round < done}
    return [(round_number, getattr(scored[round_number], metric)) for round_number in sorted(scored)]
