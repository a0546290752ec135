"""What a job asks of its sites, in which order."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedmr_med.config import JobConfig
from fedmr_med.methods.base import build
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE


@dataclass(frozen=True)
class Step:
    """One exchange of a plan.

    Attributes:
        kind: train, validate or head.
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
    Without rounds ``[head, validate]``; without a head either ``[validate]``, the scores of the initial model.

    Args:
        job: the job's settings.
        score_rounds: whether the model of every round is scored by whoever answers ``validate``: a test set at the
            server. Otherwise sites score the model that they receive to train.
    """
    return list(_steps(job, score_rounds=score_rounds))


def _steps(job: JobConfig, *, score_rounds: bool) -> Iterator[Step]:
    rounds, exchange = job.federation.rounds, head_exchange(job)
    for done in range(1, rounds + 1):
        yield Step(TRAIN, done - 1, sites_score=not score_rounds)
        if score_rounds:
            yield Step(VALIDATE, done)
        if isinstance(exchange, int) and done % exchange == 0:
            yield from _head(done)
    if rounds or exchange == "none":  # a classifier that nothing has trained is worth no score beside its head's
        yield Step(VALIDATE)
    if exchange != "none":
        yield from _head(None)


def _head(done: int | None) -> Iterator[Step]:
    yield Step(HEAD, done)
    yield Step(VALIDATE, done, of_head=True)


def head_exchange(job: JobConfig) -> str | int:
    """Return when the job asks for statistics: its own word, else its method's."""
    return build(job.method).head_exchange if job.head.exchange is None else job.head.exchange
