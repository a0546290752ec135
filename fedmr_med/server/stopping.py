"""When a chain ends: after its last round, or before where its settings say so. One rule for controller and runner.

A round scores the model it starts from. So the rule looks at the models of all rounds but the last one, whether or not
that one has been scored: the answer is the same in a FLARE job, in the runner, and after a resumption.
"""

from fedmr_med.config import JobConfig, Metric, StopConfig
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.score import Pool
from fedmr_med.server.state import GlobalState


def has_ended(job: JobConfig, state: GlobalState) -> bool:
    """Whether no further round is to be run."""
    return state.round >= job.federation.rounds or stop_reason(job.federation.stop, state.history) is not None


def stop_reason(stop: StopConfig | None, history: History) -> str | None:
    """Say why a chain ends before its last round; None if it does not.

    The untrained model does not count, and neither does a model that was not scored on test images of all classes.
    Patience begins anew where the sites that score, or their numbers of test images, change.
    """
    if stop is None:
        return None
    if stop.goal is not None:
        metric, sign, value = stop.goal
        reached = [
            (round_number, score)
            for round_number, score, _ in _scores(history, metric)
            if score > value or (sign == ">=" and score == value)
        ]
        if reached:
            return f"the model of round {reached[0][0]} has {metric} {reached[0][1]:.3f}: {stop.condition}"
    if stop.patience is not None:
        best, waited, before = 0.0, 0, None
        for _, score, pool in _scores(history, stop.metric):
            best, waited = (score, 0) if score > best or pool != before else (best, waited + 1)
            before = pool
            if waited >= stop.patience:
                return f"{waited} rounds brought no better {stop.metric} than {best:.3f}"
    return None


def why_it_cannot(stop: StopConfig | None, history: History) -> str | None:
    """Say why the rule cannot act on the last scores; None if it can, or if there is none."""
    done = history.rounds[-1].round if history.rounds else 0
    if stop is None or done < 2:  # nothing to look at yet, see above
        return None
    scored = [e for e in history.evaluations if 1 <= e.round < done]
    if not scored or scored[-1].pool is None:
        counted = (
            f"{scored[-1].chosen_on} of {scored[-1].choosing_coverage} count"
            if scored
            else "no site shares its scores by class"
        )
        return f"federation.stop cannot act: {counted}, so there is no balanced accuracy"
    if stop.patience is not None and len(scored) > 1 and scored[-1].pool != scored[-2].pool:
        return "federation.stop.patience begins anew: the scores are over other sites, or other numbers of test images"
    return None


def _scores(history: History, metric: Metric) -> list[tuple[int, float, Pool]]:
    """Return rounds done, pooled score and its pool, of the models that count, first to last."""
    done = history.rounds[-1].round if history.rounds else 0
    return [
        (e.round, getattr(e.choosing, metric), e.pool)
        for e in sorted(history.evaluations, key=lambda e: e.round)
        if e.pool is not None and 1 <= e.round < done
    ]
