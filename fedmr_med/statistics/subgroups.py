"""Scores by subgroup: those of :mod:`fedmr_med.statistics.scores`, once for each level of a column of the table.

Nothing of them leaves from which, with the scores of all images, a small number would follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import WireError
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.base import ONE_SITE, Leaving, Origin, ReadStatistic, Sizes
from fedmr_med.statistics.fields import Field, Values
from fedmr_med.statistics.scores import SCORES, permitted_scores, released_scores

Levels = Sequence[Scores | None]
"""Scores of the test images of each level, in the job's order; None of one that nobody shares."""

Mask = npt.NDArray[np.bool_]
Names = tuple[tuple[str, str], ...]


class SubgroupStatistic(ReadStatistic[Levels]):
    """The fields of each level, their names behind its number."""

    name = "subgroups"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        """Return the fields of all levels; none where a job has no subgroups."""
        own = SCORES.fields(replace(sizes, validation=False))
        return {f"{level}_{name}": field for level in range(sizes.levels) for name, field in own.items()}

    def values(self, content: Levels) -> Values:
        """Return the fields, those of a level that is not shared zero; none where no level is."""
        found = {level: SCORES.values(scores) for level, scores in enumerate(content) if scores is not None}
        if not found:
            return {}
        blank = {name: np.zeros_like(array) for name, array in next(iter(found.values())).items()}
        return {
            f"{level}_{name}": array for level in range(len(content)) for name, array in found.get(level, blank).items()
        }

    def read(self, values: Values, origin: Origin = ONE_SITE) -> Levels | None:
        """Return the scores of each level; None where nobody put anything in."""
        parts: dict[int, dict[str, np.ndarray]] = {}
        for name, array in values.items():
            level, _, field = name.partition("_")
            parts.setdefault(int(level), {})[field] = array
        found = [SCORES.read(part, origin) for _, part in sorted(parts.items())]
        return found if any(scores is not None for scores in found) else None

    def permitted(self, content: Levels | None, leaving: Leaving) -> Levels | None:
        """Return the levels that the policy allows, beside what leaves of all images."""
        whole: Scores | None = leaving.left.get(SCORES.name)
        if content is None or len(content) != len(leaving.levels) or whole is None or whole.confusion is None:
            return None
        zero = np.zeros_like(whole.confusion)
        matrices = [zero if scores is None or scores.confusion is None else scores.confusion for scores in content]
        rows, alone = _rows(matrices, whole.confusion, leaving.policy, leaving.levels)
        left: list[Scores | None] = []
        for level, scores in enumerate(content):
            if scores is None or scores.confusion is None or not rows[level].any():
                left.append(None)
            elif (scores.confusion.any(1) & ~rows[level]).any():
                left.append(None)  # histograms cannot be taken apart by class
            else:
                left.append(_of_classes(permitted_scores(scores, leaving.policy, leaving.class_names), alone[level]))
        return left if any(scores is not None for scores in left) else None

    def check(self, content: Levels, found: Mapping[str, Any]) -> None:
        """Compare the levels with all images: none has images that the whole has not."""
        whole = found.get(SCORES.name)
        known = None if whole is None else whole.confusion
        for scores in content:
            if scores is not None and (
                known is None or scores.confusion is None or (scores.confusion.sum(1) > known.sum(1)).any()
            ):
                raise WireError("a subgroup has images that the whole has not", code="wire.counts", key="subgroups")


SUBGROUPS = SubgroupStatistic()


def released_subgroups(
    logits: npt.NDArray[np.floating],
    labels: IntArray,
    of_level: Mask,
    whole: Scores | None,
    policy: SitePolicy,
    class_names: tuple[str, ...],
    levels: Names,
) -> Levels:
    """Return what may leave of a model's logits (n, C), level by level.

    Args:
        labels: (n,).
        of_level: (n, S) which images are of which level; of one level at most of each column.
        whole: what leaves of all images.
        levels: column and level of each subgroup.
    """
    if whole is None or whole.confusion is None or not levels:
        return [None] * len(levels)
    answers, classes = logits.argmax(1), len(class_names)
    exact = [confusion_matrix(labels[mask], answers[mask], classes) for mask in of_level.T]
    every = confusion_matrix(labels, answers, classes)
    rows, alone = _rows(exact, np.where(whole.confusion.any(1, keepdims=True), every, 0), policy, levels)
    found: list[Scores | None] = []
    for level, mask in enumerate(of_level.T):
        leaves = mask & rows[level][labels]
        scores = released_scores(logits[leaves], labels[leaves], policy, class_names) if leaves.any() else None
        found.append(_of_classes(scores, alone[level]))
    return found


def _of_classes(scores: Scores | None, exact: bool) -> Scores | None:
    """Return scores by class or none; with their histograms where nothing small follows from exact cells."""
    if scores is None or scores.confusion is None:
        return None
    return replace(scores, clustering=None, histograms=scores.histograms if exact else None)


def _rows(
    matrices: Sequence[IntArray], whole: IntArray, policy: SitePolicy, levels: Names
) -> tuple[list[Mask], list[bool]]:
    """Return which classes (C,) of each level leave, and whether its exact cells may.

    A row leaves if it keeps to the rule of small cells, and so does what is left of the row of all images: the smallest
    go with those that are held back until nobody can subtract.
    """
    told = policy.told_levels(levels)
    rows = [np.zeros(len(whole), np.bool_) for _ in levels]
    exact = [False] * len(levels)
    for column in dict.fromkeys(name for name, _ in levels):
        own = [index for index, (name, _) in enumerate(levels) if name == column and told[index]]
        for label in range(len(whole)):

            def fits(row: IntArray, label: int = label) -> bool:
                return _large(row, label, policy)

            leaving = [index for index in own if matrices[index][label].any() and fits(matrices[index][label])]
            while leaving and not fits(whole[label] - sum(matrices[index][label] for index in leaving)):
                leaving.remove(min(leaving, key=lambda index: int(matrices[index][label].sum())))
            for index in leaving:
                rows[index][label] = True
        kept = [np.where(rows[index][:, None], matrices[index], 0) for index in own]
        rest = whole - sum(kept, np.zeros_like(whole))
        cells = [rest, *kept]
        fine = not any(((part != 0) & (part < policy.min_cell_count)).any() for part in cells)
        for index in own:
            exact[index] = fine
    return rows, exact


def _large(row: IntArray, label: int, policy: SitePolicy) -> bool:
    """Whether a row (C,) of images of a class is of none, or of enough, with no right answer or wrong ones too few."""
    right, images = int(row[label]), int(row.sum())
    if images == 0 and right == 0:
        return True
    wrong, least = images - right, policy.min_cell_count
    return images >= policy.min_class_count and all(count == 0 or count >= least for count in (right, wrong))
