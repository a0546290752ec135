"""What may leave of scores by subgroup: none from which, with the scores of all, a small number would follow."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.site.scores import permitted_scores, released_scores
from fedmr_med.statistics.subgroups import Levels

Mask = npt.NDArray[np.bool_]
Names = tuple[tuple[str, str], ...]


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


def permitted_subgroups(
    found: Levels, whole: Scores | None, policy: SitePolicy, class_names: tuple[str, ...], levels: Names
) -> Levels:
    """Return scores by level without what the policy does not allow; ``whole`` is what leaves of all images."""
    if len(found) != len(levels) or whole is None or whole.confusion is None:
        return [None] * len(levels)
    zero = np.zeros_like(whole.confusion)
    matrices = [zero if scores is None or scores.confusion is None else scores.confusion for scores in found]
    rows, alone = _rows(matrices, whole.confusion, policy, levels)
    left: list[Scores | None] = []
    for level, scores in enumerate(found):
        if scores is None or scores.confusion is None or not rows[level].any():
            left.append(None)
        elif (scores.confusion.any(1) & ~rows[level]).any():
            left.append(None)  # histograms cannot be taken apart by class
        else:
            left.append(_of_classes(permitted_scores(scores, policy, class_names), alone[level]))
    return left


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
