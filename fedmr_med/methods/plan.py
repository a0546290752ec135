"""What a job asks of its sites, in which order."""

from dataclasses import dataclass

from fedmr_med.config import JobConfig
from fedmr_med.methods.base import build
from fedmr_med.statistics.exchanges import HEAD, SURVEY, TRAIN, VALIDATE


@dataclass(frozen=True)
class Step:
    """One exchange of a plan.

    Attributes:
        kind: train, validate, head or survey.
        round: completed rounds of the model it asks about; None: of the last model, whichever round it is of.
        of_head: whether a model is scored with its closed-form head.
        sites_score: whether sites score the model that they receive to train.
    """

    kind: str
    round: int | None = None
    of_head: bool = False
    sites_score: bool = True


def plan(job: JobConfig, *, score_rounds: bool = False) -> list[Step]:
    """Return the steps of a whole chain; those that are done already are skipped when it resumes.

    ``[train] * rounds + [validate, head, validate]``, with a head after every k-th round where the job asks for it.
    Without rounds ``[head, validate]``; without a head either ``[validate]``, the scores of the initial model. A survey
    is ``[survey]``.

    Args:
        job: the job's settings.
        score_rounds: whether the model of every round is scored by whoever answers ``validate``: a test set at the
            server. Otherwise sites score the model that they receive to train.
    """
    if job.survey:
        return [Step(SURVEY)]
    rounds, exchange, steps = job.federation.rounds, head_exchange(job), []
    for done in range(1, rounds + 1):
        steps.append(Step(TRAIN, done - 1, sites_score=not score_rounds))
        if score_rounds:
            steps.append(Step(VALIDATE, done))
        if isinstance(exchange, int) and done % exchange == 0:
            steps += _head(done)
    if rounds or exchange == "none":  # a classifier that nothing has trained is worth no score beside its head's
        steps.append(Step(VALIDATE))
    return [*steps, *(_head(None) if exchange != "none" else ())]


def _head(done: int | None) -> tuple[Step, Step]:
    return Step(HEAD, done), Step(VALIDATE, done, of_head=True)


def head_exchange(job: JobConfig) -> str | int:
    """Return when the job asks for statistics: its own word, else its method's."""
    return build(job.method).head_exchange if job.head.exchange is None else job.head.exchange
