"""The scores of one model: of each site, and of all of them together."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from fedmr_med.evaluation.base import MetricName, Statistics
from fedmr_med.evaluation.figures import Figures, figures
from fedmr_med.evaluation.heterogeneity import Between, apart_from, between
from fedmr_med.evaluation.metrics import Scores, classes_text, pooled, recalls
from fedmr_med.evaluation.pairs import PairRecord
from fedmr_med.evaluation.sets import set_thresholds
from fedmr_med.schema import Name, Omitted, Strict

HELD_BY = "share_metrics, min_class_count or min_cell_count of its policy"
"""What a site holds scores back by, for a line of a log."""

_IF_ANY = Field(exclude_if=lambda value: not value)
_FEWEST = 2
"""Classes of which a score is one, and sites of which one can be the worst."""


class Score(Strict):
    """The scalars of :class:`fedmr_med.evaluation.metrics.Scores`.

    A class counts if it has test images and is not held back. A model that always answers with one class is right on
    all images of it, so a score over fewer than two classes is no score.

    Attributes:
        samples: test images that count.
        balanced_accuracy: mean recall over all classes of the task; None unless all of them count.
        mean_recall: over the classes that count; None where there is only one.
        accuracy: over the images that count; None where they are of one class.
        classes: how many classes count; None where only the scalars are shared, which do not tell.
        withheld: the labels of the classes that a site holds back.
        recall: of each class, in the order of the labels; None for a class that does not count. Empty where only the
            scalars are shared.
    """

    accuracy: float | None
    balanced_accuracy: float | None = None
    mean_recall: float | None = None
    classes: int | None = None
    samples: int
    withheld: tuple[int, ...] = ()
    recall: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, scores: Scores) -> "Score":
        """Drop the confusion matrix and the histograms."""
        return cls(
            recall=() if scores.confusion is None else recalls(scores.confusion),
            accuracy=scores.accuracy,
            mean_recall=scores.mean_recall,
            balanced_accuracy=scores.mean_recall,
            samples=scores.samples,
            withheld=scores.withheld,
        )

    @model_validator(mode="before")
    @classmethod
    def _of_the_classes_that_count(cls, content: Any) -> Any:
        """Take away what so few classes cannot tell; earlier versions called any mean a balanced accuracy."""
        if not isinstance(content, dict) or "classes" in content:
            return content
        recall = content.get("recall", ())
        count = sum(value is not None for value in recall) if recall else None
        mean = content.get("mean_recall", content.get("balanced_accuracy"))
        known = {"classes": count, "mean_recall": mean, "balanced_accuracy": mean if count == len(recall) else None}
        if count is not None and count < _FEWEST:
            known |= {"mean_recall": None, "accuracy": None}
        return content | known

    @property
    def of_one_class(self) -> bool:
        """Whether every image was taken for the same class, as far as the shared scores tell."""
        counted = [value for value in self.recall if value is not None]
        return len(counted) >= _FEWEST and sorted(counted) == [0.0] * (len(counted) - 1) + [1.0]

    @property
    def coverage(self) -> str:
        """How many of the classes count, in words."""
        return classes_text(self.classes, len(self.recall))

    def text(self) -> str:
        """Return the score as people read it, by its right name."""
        if self.balanced_accuracy is not None:
            return f"balanced accuracy {self.balanced_accuracy:.3f}"
        if self.mean_recall is None:
            return f"no score, {self.coverage}"
        return f"mean recall {self.mean_recall:.3f} over {self.coverage}"

    def cell(self) -> str:
        """Return the score for a table; a mean over some classes says over how many."""
        if self.mean_recall is None or self.classes is None or self.balanced_accuracy is not None:
            return "-" if self.mean_recall is None else f"{self.mean_recall:.3f}"
        return f"{self.mean_recall:.3f} ({self.classes}/{len(self.recall)})"


Pool = tuple[tuple[str, ...], int]
"""What scores have to be over to be compared: sites, and their number of test images, of all classes."""


class Validation(Strict):
    """The images that choose, which are no test images, and what they chose.

    Attributes:
        pooled: score of the model on them; None where no site shares one.
        pooled_sites: the sites whose images they are.
        thresholds: of each class; empty where classes are missing.
        temperature: to divide logits by; None where classes are missing.
    """

    pooled: Score | None = None
    pooled_sites: tuple[Name, ...] = ()
    thresholds: tuple[float | None, ...] = ()
    temperature: float | None = None

    @classmethod
    def of(cls, total: Scores | None, sites: tuple[str, ...]) -> "Validation":
        """Choose on pooled scores of some sites; on none, nothing is chosen."""
        found = None if total is None else figures(total)
        if total is None or found is None:
            return cls()
        return cls(
            pooled=Score.of(total),
            pooled_sites=sites,
            thresholds=found.thresholds,
            temperature=found.temperature,
        )


class Subgroup(Strict):
    """A level of a column, over all sites that share its scores.

    Attributes:
        sites: those sites; none where all hold it back. Empty as well where a secure sum gave the total.
        apart: by how much its mean recall is above that of all images, over the classes that it has.
        figures: its own.
    """

    sites: tuple[Name, ...] = ()
    apart: float | None = None
    figures: Figures | None = None

    @classmethod
    def of(
        cls, scores: Scores | None, sites: tuple[str, ...], whole: Scores | None, like: Figures | None
    ) -> "Subgroup":
        """Sum up the scores of a level, with the thresholds of all images."""
        if scores is None or whole is None:
            return cls()
        found = figures(scores, like.thresholds if like else None)
        return cls(sites=sites, apart=apart_from(scores, whole), figures=found)


class Evaluation(Strict):
    """The global model after ``round`` rounds on the test sets of the sites that share their scores.

    Attributes:
        round: completed rounds; 0 is the initial model.
        sites: score by site.
        pooled: over the sites in ``pooled_sites``, which share their confusion matrix.
        held_back: the sites that answered and let no score out.
        statistics: see :data:`Statistics`.
        metrics: every metric over those sites, for all classes together.
        figures, pooled_figures: the clinical figures by site and pooled. To keep files small they stay with the best
            and the last evaluation of a chain only.
        validation: on the images that choose; None where the test images do.
        between: how figures of each class differ between the sites.
        apart: by how much each site's mean recall is above that of all sites, over the classes that it tells.
        subgroups: by column of the sites' tables and level.
        against: another model on the same images.
    """

    round: int
    sites: dict[Name, Score]
    pooled: Score | None
    pooled_sites: tuple[Name, ...]
    held_back: tuple[Name, ...] = ()
    statistics: Statistics = {}
    metrics: dict[MetricName, float] = {}
    figures: dict[Name, Figures] = {}
    pooled_figures: Figures | None = None
    validation: Omitted[Validation] = None
    between: Annotated[tuple[Between, ...], _IF_ANY] = ()
    apart: Annotated[dict[Name, float], _IF_ANY] = {}
    subgroups: Annotated[dict[Name, dict[Name, Subgroup]], _IF_ANY] = {}
    against: Omitted[PairRecord] = None

    @classmethod
    def of(cls, round_number: int, answers: Mapping[str, Scores | None], *, validates: bool = False) -> "Evaluation":
        """Sum up the scores of a model.

        Args:
            round_number: completed rounds of the model.
            answers: scores by site; None of a site that holds them back.
            validates: whether the job has validation images. Nothing is chosen on test images then.
        """
        known = {site: scores for site, scores in sorted(answers.items()) if scores is not None}
        pool, names = pooled(known)
        choosing = tuple(site for site in names if known[site].validation is not None)
        whole = cls.of_total(round_number, pool, names, validates=validates, choosing=choosing)
        thresholds = whole.pooled_figures.thresholds if whole.pooled_figures else None
        by_site = {site: figures(scores, thresholds) for site, scores in known.items()}
        apart = {site: value for site in names if pool and (value := apart_from(known[site], pool)) is not None}
        return whole.model_copy(
            update={
                "sites": {site: Score.of(scores) for site, scores in known.items()},
                "held_back": tuple(sorted(answers.keys() - known.keys())),
                "figures": {site: found for site, found in by_site.items() if found is not None},
                "between": between(known),
                "apart": apart if len(names) >= _FEWEST else {},
            }
        )

    @classmethod
    def of_total(
        cls,
        round_number: int,
        total: Scores | None,
        sites: tuple[str, ...],
        *,
        validates: bool = False,
        choosing: tuple[str, ...] | None = None,
    ) -> "Evaluation":
        """Sum up scores of which only the total over ``sites`` is known; None where none of them shares any.

        Args:
            round_number, total, sites, validates: as above.
            choosing: the sites whose validation images are in it; None means all.
        """
        chosen = None
        if validates:
            chosen = Validation.of(total.validation if total else None, sites if choosing is None else choosing)
        together = _together(total, chosen)
        values = {name: estimate.value for name, estimate in together.metrics.items()} if together else {}
        return cls(
            round=round_number,
            sites={},
            pooled=None if total is None else Score.of(total),
            pooled_sites=() if total is None else sites,
            metrics=values,
            pooled_figures=together,
            validation=chosen,
        )

    @property
    def choosing(self) -> Score | None:
        """The score that models are compared by: on validation images, where the job has such, else on test images."""
        return self.pooled if self.validation is None else self.validation.pooled

    @property
    def choosing_sites(self) -> tuple[str, ...]:
        """The sites that it is over."""
        return self.pooled_sites if self.validation is None else self.validation.pooled_sites

    @property
    def chosen_on(self) -> str:
        """On which images models are compared, and thresholds and the temperature are chosen, in words."""
        return "test images" if self.validation is None else "validation images"

    @property
    def pool(self) -> Pool | None:
        """What that score is over; None where it is not a score of the whole model, as classes are missing."""
        score = self.choosing
        return None if score is None or score.balanced_accuracy is None else (self.choosing_sites, score.samples)

    @property
    def coverage(self) -> str:
        """How many of the classes and of the sites that answered count in the pooled score, in words."""
        return self._coverage(self.pooled, self.pooled_sites)

    @property
    def choosing_coverage(self) -> str:
        """The same of the score that models are compared by."""
        return self._coverage(self.choosing, self.choosing_sites)

    def _coverage(self, score: Score | None, sites: tuple[str, ...]) -> str:
        answered = len({*self.sites, *self.held_back})
        of_sites = f"{len(sites)} of {answered} sites" if answered else f"{len(sites)} sites"
        return of_sites if score is None else f"{score.coverage}, {of_sites}"

    @property
    def why_missing(self) -> str | None:
        """Say in a sentence why scores are missing, and who holds some back; None where nothing is missing."""
        silent = {*self.held_back, *(site for site, score in self.sites.items() if score.withheld)}
        silent |= {site for site, found in self.figures.items() if "auroc" not in found.metrics}
        if not silent and self.pooled is not None and self.pooled.balanced_accuracy is not None:
            return None
        who = f" ({', '.join(sorted(silent))})" if silent else ""
        return (
            f"Some scores are held back{who}. A hospital shares scores of a class only if it has at least "
            "min_class_count test images. Right answers and wrong ones must each be none, or at least min_cell_count; "
            "for curves and calibration, every cell (11 each by default). Its share_metrics can hold back more."
        )

    def by_level(
        self, levels: Sequence[tuple[str, str]], found: Sequence[tuple[Scores | None, tuple[str, ...]]], whole: Scores
    ) -> "Evaluation":
        """Return the evaluation with the scores of each level of a job's subgroups, and the sites that share them."""
        subgroups: dict[str, dict[str, Subgroup]] = {}
        for (column, level), (scores, sites) in zip(levels, found, strict=True):
            subgroups.setdefault(column, {})[level] = Subgroup.of(scores, sites, whole, self.pooled_figures)
        return self.model_copy(update={"subgroups": subgroups})

    @property
    def worst_site(self) -> tuple[str, float] | None:
        """The site whose mean recall is the furthest below that of all, over its classes; None if none is below."""
        return _worst(self.apart)

    @property
    def worst_levels(self) -> dict[str, tuple[str, float]]:
        """The same of the levels of each column."""
        apart = {column: {name: one.apart for name, one in levels.items()} for column, levels in self.subgroups.items()}
        return {column: worst for column, levels in apart.items() if (worst := _worst(levels))}

    def without_figures(self) -> "Evaluation":
        """Return the evaluation with its scalars alone."""
        details: dict[str, Any] = {"figures": {}, "pooled_figures": None, "between": (), "apart": {}, "subgroups": {}}
        return self.model_copy(update=details)


def _worst(apart: Mapping[str, float | None]) -> tuple[str, float] | None:
    below = {name: value for name, value in apart.items() if value is not None and value < 0}
    return min(below.items(), key=lambda one: (one[1], one[0]), default=None)


def _together(total: Scores | None, chosen: Validation | None) -> Figures | None:
    """Return the figures of pooled scores, with what was chosen elsewhere if anything was meant to be."""
    if total is None or total.confusion is None:
        return None
    apart = None if chosen is None else chosen.thresholds or [None] * len(total.confusion)
    found = figures(total, apart)
    changes: dict[str, Any] = {} if chosen is None else {"temperature": chosen.temperature}
    if total.histograms is not None and total.histograms.samples:  # of test images, which need not have chosen
        changes["set_thresholds"] = set_thresholds(total.histograms.positives)
    return None if found is None else found.model_copy(update=changes)
