"""The history of a chain: its rounds, the scores of its models, and which model is kept."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from fedmr_med.evaluation.records import HeadRecord, RoundRecord, SiteRound, SurveyRecord, Withdrawal
from fedmr_med.evaluation.score import HELD_BY, Evaluation
from fedmr_med.schema import Omitted, Strict

RUNAWAY_ROUNDS, RUNAWAY_FACTOR = 5, 1.5
"""Features run away if the shared class means became longer in each of so many rounds, and are so many times as long as
the shortest ones before."""


class Best(Strict):
    """The model that is kept: the best so far, or the last one where nobody can tell which is the best.

    Models are compared as long as they are scored on one pool of test images, of all classes: the same sites with the
    same number of images. Where the pool changes, the comparison begins anew.

    Attributes:
        round: completed rounds.
        balanced_accuracy: pooled over the images that choose, the highest of the models that were compared; None of a
            last model.
        head: whether with a closed-form head.
        since: completed rounds of the first model that it was compared with.
    """

    round: int
    balanced_accuracy: float | None = None
    head: bool = False
    since: int = 0


class History(Strict):
    """All rounds and evaluations of a chain, the model that is kept, and the last closed-form head.

    Attributes:
        rounds, evaluations, best, head: as above.
        no_head: why the last head could not be solved for.
        survey: what the sites hold, where the job asked.
        withdrawn: the sites that left, first to last.
    """

    rounds: tuple[RoundRecord, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    best: Best | None = None
    head: HeadRecord | None = None
    no_head: Omitted[str] = None
    survey: Omitted[SurveyRecord] = None
    withdrawn: Annotated[tuple[Withdrawal, ...], Field(exclude_if=lambda value: not value)] = ()

    @property
    def of_head(self) -> Evaluation | None:
        """The evaluation of the model with the last head; None where there is none."""
        return self.head.evaluation if self.head else None

    @property
    def best_evaluation(self) -> Evaluation | None:
        """The evaluation of the model that is kept; None where it was not scored."""
        if self.best is not None and self.best.head:
            return self.of_head if self.head and self.head.round == self.best.round else None
        return next((e for e in self.evaluations if self.best and e.round == self.best.round), None)

    def with_evaluation(self, evaluation: Evaluation) -> "History":
        """Add an evaluation, and say which model is kept from now on."""
        best = self._best_with(evaluation)
        others = tuple(
            e if best and not best.head and e.round == best.round else e.without_figures()
            for e in self.evaluations
            if e.round != evaluation.round
        )
        return self.model_copy(update={"evaluations": (*others, evaluation), "best": best})

    def _best_with(self, evaluation: Evaluation) -> Best:
        """Return which model is kept once an evaluation is known.

        A trained model that scores as the initial one is better than that: it knows what the initial one guesses.
        """
        best, pool, round_number = self.best, evaluation.pool, evaluation.round
        score = evaluation.choosing.balanced_accuracy if evaluation.choosing else None
        if score is None:
            last = max(round_number, self.rounds[-1].round if self.rounds else 0)
            return best if best and best.balanced_accuracy is None and best.round == last else Best(round=last)
        before = self.evaluations[-1].pool if self.evaluations else None
        if best is None or best.balanced_accuracy is None or pool != before:
            return Best(round=round_number, balanced_accuracy=score, since=round_number)
        untrained = best.round == 0 and not best.head
        if score > best.balanced_accuracy or (untrained and score == best.balanced_accuracy):
            return Best(round=round_number, balanced_accuracy=score, since=best.since)
        return best

    def with_head(self, record: HeadRecord, *, whole: bool = True) -> "History":
        """Put down a head. Scored on the pool of the best model, it becomes the best if its score is higher.

        Where no best model can be told, the head is kept with the last one, if it knows all classes or nothing else of
        the classifier was trained.

        Args:
            record: the head.
            whole: whether it knows all classes; of a head that is not scored yet.
        """
        best, evaluation = self.best, record.evaluation
        score = evaluation.choosing.balanced_accuracy if evaluation and evaluation.choosing else None
        compares = evaluation and (not self.evaluations or evaluation.pool == self.evaluations[-1].pool)
        if best is None or best.balanced_accuracy is None:
            if score is not None:
                best = Best(round=record.round, balanced_accuracy=score, head=True, since=record.round)
            elif evaluation is None and (whole or not self.rounds):
                best = Best(round=record.round, head=True)
        elif compares and score is not None and score > best.balanced_accuracy:
            best = Best(round=record.round, balanced_accuracy=score, head=True, since=best.since)
        return self.model_copy(update={"head": record, "no_head": None, "best": best})

    def without_head(self, reason: str) -> "History":
        """Put down why a head could not be solved for."""
        return self.model_copy(update={"no_head": reason})

    def why_last(self, class_names: Sequence[str]) -> str | None:
        """Say why the last model is kept, or since when models are compared; None where all of them were."""
        best = self.best
        if best is None or (best.balanced_accuracy is not None and best.since <= self._first):
            return None
        if best.balanced_accuracy is not None:
            return (
                f"Models are compared from round {best.since} on: before it, the scores were over other sites, other "
                "numbers of test images, or not all classes."
            )
        scored = [e for e in (*self.evaluations, self.of_head) if e is not None]
        chosen_by = scored[-1].choosing if scored else None
        if not scored or chosen_by is None:
            which = f" of {scored[-1].chosen_on}" if scored else ""
            return (
                f"No site shares scores{which} by class (each holds them back by {HELD_BY}), so nobody can tell the "
                "best model: the last one is kept."
            )
        missing = [name for name, recall in zip(class_names, chosen_by.recall, strict=False) if recall is None]
        images = scored[-1].chosen_on
        return (
            f"The score is over {scored[-1].choosing_coverage}: of {', '.join(missing)} too few {images} may leave the "
            f"sites (each holds them back by {HELD_BY}), or there are none. So there is no balanced accuracy, nobody "
            "can tell the best model, and the last one is kept."
        )

    @property
    def _first(self) -> int:
        """Completed rounds of the first model that was scored, whoever scored it."""
        return self.evaluations[0].round if self.evaluations else self.head.round if self.head else 0

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
        """Add a round. Its model is kept where nobody can tell which is the best."""
        best = self.best
        if best is None or best.balanced_accuracy is None:
            best = Best(round=record.round)
        return self.model_copy(update={"rounds": (*self.rounds, record), "best": best})

    @property
    def sites(self) -> set[str]:
        """The sites whose reply counted in any round."""
        return {site for record in self.rounds for site in record.sites}

    @property
    def left(self) -> set[str]:
        """The sites that left the chain."""
        return {withdrawal.site for withdrawal in self.withdrawn}

    def rounds_of(self, site: str) -> list[RoundRecord]:
        """Return the rounds in which a site's reply counted."""
        return [record for record in self.rounds if site in record.sites]

    def knows(self, site: str) -> bool:
        """Whether a site has answered anything of the chain, or was refused."""
        made = [record for record in (*self.rounds, self.head) if record is not None]
        scored = [evaluation for evaluation in (*self.evaluations, self.of_head) if evaluation is not None]
        return any(site in record.sites or site in record.refused for record in made) or any(
            site in evaluation.sites or site in evaluation.held_back for evaluation in scored
        )

    def parts_of(self, site: str) -> list[SiteRound]:
        """Return a site's part in each round in which its reply counted."""
        return [record.sites[site] for record in self.rounds_of(site)]
