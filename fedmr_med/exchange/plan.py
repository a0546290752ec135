"""Which step of a job's plan is due, and which sites take part in a round."""

from collections.abc import Iterable

from fedmr_med.config import JobConfig
from fedmr_med.methods.plan import Step, plan
from fedmr_med.seeding import numpy_generator
from fedmr_med.server.state import BIAS, WEIGHT, GlobalState
from fedmr_med.server.stopping import has_ended
from fedmr_med.wire.kinds import HEAD, SURVEY, TRAIN

__all__ = ["Step", "draw_sites", "due", "plan"]


def due(step: Step, job: JobConfig, state: GlobalState) -> bool:
    """Whether the step is to be done from ``state``, and not done yet."""
    if step.round is not None and step.round != state.round:
        return False
    head = state.history.head
    has_head = head is not None and head.round == state.round
    if step.kind == TRAIN:
        return not has_ended(job, state)
    if step.kind == HEAD:
        return not has_head and WEIGHT in state.model and BIAS in state.model
    if step.kind == SURVEY:
        return state.history.survey is None
    if step.of_head:
        return has_head and head is not None and head.evaluation is None
    return all(evaluation.round != state.round for evaluation in state.history.evaluations)


def draw_sites(names: Iterable[str], count: int | None, *, seed: int, round_number: int) -> list[str]:
    """Draw the sites of a round by seed, in the order of their names; the same whoever connected first.

    A ``count`` of None, or of more than there are, takes all of them.
    """
    ordered = sorted(names)
    if count is None or count >= len(ordered):
        return ordered
    drawn = numpy_generator(seed, "sites", round_number).choice(len(ordered), count, replace=False)
    return [ordered[index] for index in sorted(drawn.tolist())]
