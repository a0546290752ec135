"""The history of a chain: its rounds, the scores of its models, and which model is kept."""

from itertools import pairwise

from fedmr_med.evaluation.records import HeadRecord, RoundRecord, SiteRound
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.schema import Strict

RUNAWAY_ROUNDS, RUNAWAY_FACTOR = 5, 1.5
"""Features run away if the shared class means became longer in each of so many rounds, and are so many times as long as
the shortest ones before."""


class Best(Strict):
    """The best global model so far: completed rounds, pooled balanced accuracy, and whether with a closed-form head."""

    round: int
    balanced_accuracy: float
    head: bool = False


class History(Strict):
    """All rounds and evaluations of a chain, the best model, and the last closed-form head."""

    rounds: tuple[RoundRecord, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    best: Best | None = None
    head: HeadRecord | None = None

    @property
    def best_evaluation(self) -> Evaluation | None:
        """The evaluation of the best model; None where no model was scored."""
        if self.best is not None and self.best.head:
            return self.head.evaluation if self.head and self.head.round == self.best.round else None
        return next((e for e in self.evaluations if self.best and e.round == self.best.round), None)

    def with_evaluation(self, evaluation: Evaluation) -> "History":
        """Add an evaluation; it becomes the best if its pooled balanced accuracy is higher than all before.

        A trained model that scores as the initial one is better than that: it knows what the initial one guesses.
        """
        best = self.best
        score = evaluation.pooled.balanced_accuracy if evaluation.pooled else None
        untrained = best is not None and best.round == 0 and not best.head
        if evaluation.pooled and (
            best is None
            or evaluation.pooled.balanced_accuracy > best.balanced_accuracy
            or (untrained and score == best.balanced_accuracy)
        ):
            best = Best(round=evaluation.round, balanced_accuracy=evaluation.pooled.balanced_accuracy)
        others = tuple(
            e if best and not best.head and e.round == best.round else e.without_figures()
            for e in self.evaluations
            if e.round != evaluation.round
        )
        return self.model_copy(update={"evaluations": (*others, evaluation), "best": best})

    def with_head(self, record: HeadRecord) -> "History":
        """Put down a head; scored, it becomes the best if its pooled balanced accuracy is higher than all before."""
        best, pooled = self.best, record.evaluation.pooled if record.evaluation else None
        if pooled and (best is None or pooled.balanced_accuracy > best.balanced_accuracy):
            best = Best(round=record.round, balanced_accuracy=pooled.balanced_accuracy, head=True)
        return self.model_copy(update={"head": record, "best": best})

    @property
    def runaway_round(self) -> int | None:
        """The first round in which features ran away from their prototypes; None if they did not."""
        known = [(record.round, record.prototype_norm) for record in self.rounds if record.prototype_norm is not None]
        rises, shortest = 0, float("inf")
        for (_, before), (number, now) in pairwise(known):
            rises, shortest = (rises + 1 if now > before else 0), min(shortest, before)
            if rises >= RUNAWAY_ROUNDS and now >= RUNAWAY_FACTOR * shortest:
                return number
        return None

    def with_round(self, record: RoundRecord) -> "History":
        """Add a round."""
        return self.model_copy(update={"rounds": (*self.rounds, record)})

    @property
    def sites(self) -> set[str]:
        """The sites whose reply counted in any round."""
        return {site for record in self.rounds for site in record.sites}

    def parts_of(self, site: str) -> list[SiteRound]:
        """Return a site's part in each round in which its reply counted."""
        return [record.sites[site] for record in self.rounds if site in record.sites]
