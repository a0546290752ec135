"""What a site tells of a model's answers to its test images, as far as its policy allows."""

from dataclasses import replace

import numpy as np

from fedmr_med.config import PAIR, JobConfig
from fedmr_med.data.base import class_counts
from fedmr_med.data.subgroups import members
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.evaluation.metrics import Scores, confusion_matrix
from fedmr_med.evaluation.pairs import Pairs
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.site.images import Images
from fedmr_med.site.training import every_output, outputs
from fedmr_med.statistics.pairs import released_pairs
from fedmr_med.statistics.scores import released_scores
from fedmr_med.statistics.subgroups import Levels, released_subgroups


class Scoring:
    """Makes the scores of one site in one job that may leave."""

    def __init__(self, job: JobConfig, policy: SitePolicy):
        self._job, self._policy, self._names = job, policy, job.task.class_names

    def scores(self, images: Images, validation: Images | None = None) -> Scores | None:
        """Score a network on test images, and on those that choose."""
        if self._policy.share_metrics == "none" or not len(images.fold):
            return None
        scores = released_scores(*outputs(images.network, images.batches), self._policy, self._names, images.patients)
        if scores is None or scores.confusion is None or validation is None:
            return scores
        chosen_on = self.scores(validation)
        # Scalars do not add up, so they choose nothing.
        return replace(scores, validation=None if chosen_on is None or chosen_on.confusion is None else chosen_on)

    def by_level(self, images: Images, whole: Scores | None) -> Levels | None:
        """Score the images of each level of the job's subgroups; None where no level may be told of.

        Args:
            whole: what leaves of the scores of all images.
        """
        levels = self._job.task.levels
        if whole is None or whole.confusion is None or not self._policy.told_levels(levels).any():
            return None
        logits, labels = outputs(images.network, images.batches)
        of_level = members(images.fold, levels)
        found = released_subgroups(logits, labels, of_level, whole, self._policy, self._names, levels)
        return found if any(scores is not None for scores in found) else None

    def paired(self, images: Images, whole: Scores | None) -> Pairs | None:
        """Compare two models, where the job does; the second one's logits are the features of the network.

        Args:
            whole: what leaves of the scores of the first model.
        """
        if self._job.model.name != PAIR:
            return None
        features, logits, labels = every_output(images.network, images.batches)
        answers = logits.argmax(1), features.argmax(1)
        return released_pairs(answers, labels, whole, self._policy, images.patients)

    def counts(self, images: Images) -> IntArray:
        """Return how many images (C,) there are of each class that has no small cell in the confusion matrix."""
        counts = class_counts(images.fold, len(self._names))
        if self._policy.min_cell_count == 1:
            return counts
        logits, labels = outputs(images.network, images.batches)
        matrix = confusion_matrix(labels, logits.argmax(1), len(self._names))
        small = ((matrix > 0) & (matrix < self._policy.min_cell_count)).any(1)
        return np.where(small, 0, counts)
