"""A site's class sums with noise: differentially private, if its budget allows another release.

With a budget, the set of classes that leave must not depend on the images, so every class that the policy names is in
the sums, with noise alone where the site has no image of it. What is too small is left out afterwards, by its noisy
count. A site without a budget has not agreed that noise takes the place of its small-cell rule, whatever a job calls
noise: there, small classes are in no sum.
"""

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.config import JobConfig, PrivateConfig
from fedmr_med.data.base import Fold, class_counts, units
from fedmr_med.data.loading import Batches
from fedmr_med.network import Network
from fedmr_med.privacy.mechanisms import Gaussian, clipped_features
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.site.ledger import Ledger
from fedmr_med.site.training import features
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.head import projection, triangle_of
from fedmr_med.statistics.moments import COUNTS, KEPT, MEANS, MOMENTS, SUMS

Weights = npt.NDArray[np.float64]

_log = logging.getLogger(__name__)


class PrivateSums:
    """Makes the noisy class sums of one site.

    Args:
        settings: the job's ``federation.private``.
        ledger: of the site's budget for class sums.
    """

    def __init__(self, site: str, job: JobConfig, settings: PrivateConfig, policy: SitePolicy, ledger: Ledger):
        self._site, self._job, self._policy = site, job, policy
        self._settings, self._ledger = settings, ledger

    def due(self, round_number: int) -> bool:
        """Whether class sums are released in a round, from 0."""
        return round_number % self._settings.every == 0

    def sums(self, network: Network, batches: Batches, fold: Fold, *, chain: str, release: str) -> ClassSums | None:
        """Return the class sums as they may leave, after the budget was charged for them; None if nothing may.

        For a secure sum there is always something: a site whose budget is used up, or that opted out, puts noise in,
        so that the total has all of it.

        Raises:
            PolicyError: the ledger of the budget is not the latest.
        """
        found = self._made(network, batches, fold, chain, release)
        gaussian = self._settings.gaussian
        if self._job.federation.sums_statistics:
            found = found or Clipped.zeros(self._job.task.num_classes, network.feature_size)
            return gaussian.add_to(found.sums, found.weights, parts=self._parts)
        return None if found is None else self._large_enough(gaussian.add_to(found.sums, found.weights), gaussian)

    def head(self, network: Network, batches: Batches, fold: Fold, *, chain: str, release: str) -> dict[str, Values]:
        """Return the statistics for a closed-form head as they may leave, after the budget was charged for them.

        For a secure sum there is always something, as for :meth:`sums`. There a site without scatter puts in noise
        alone: a further field of means would cost everybody's head as much noise again.

        Raises:
            PolicyError: as :meth:`sums`.
        """
        gaussian, directions = self._settings.head_gaussian, self._directions(network)
        summed, scatter = self._job.federation.sums_statistics, self._policy.share_scatter
        makes = scatter or not summed
        found = self._made(network, batches, fold, chain, release, directions) if makes else None
        if found is None and not summed:
            return {}
        found = found or Clipped.zeros(self._job.task.num_classes, _length(network, directions))
        parts = self._parts if summed else 1
        sums = gaussian.add_to(found.sums, found.weights, parts=parts)
        if not summed:
            left = self._large_enough(sums, gaussian)
            if left is None or not scatter:
                return {} if left is None else {MEANS.name: MEANS.values(left)}
            sums = left
        moments = gaussian.add_to_moments(found.moments, parts=parts)
        return {KEPT.name: {COUNTS: sums.counts.numpy(), SUMS: sums.sums.numpy(), MOMENTS: moments}}

    @property
    def _parts(self) -> int:
        """How many sites' noise makes all of it: one of the fewest sites of a total may know its own."""
        return self._job.federation.min_sites - 1

    def _large_enough(self, noisy: ClassSums, gaussian: Gaussian) -> ClassSums | None:
        """Return the classes whose noisy count is large enough to leave without a secure sum; None if there is none."""
        least = max(self._policy.min_class_count, gaussian.least_count)
        chosen = torch.from_numpy(self._policy.chosen_classes(self._job.task.class_names))
        left = noisy.only(chosen & (noisy.counts >= least))
        return left if bool((left.counts > 0).any()) else None

    def _directions(self, network: Network) -> torch.Tensor | None:
        return projection(self._job.seed, network.feature_size, self._job.head.projection)

    def _made(
        self,
        network: Network,
        batches: Batches,
        fold: Fold,
        chain: str,
        release: str,
        directions: torch.Tensor | None = None,
    ) -> "Clipped | None":
        """Return what noise is added to, after the budget was charged for it; None if nothing may leave."""
        names = self._job.task.class_names
        if self._policy.privacy is None:
            chosen = self._policy.shareable_classes(class_counts(fold, len(names)), names)
        else:
            chosen = self._policy.chosen_classes(names)
        shared = tuple(name for name, yes in zip(names, chosen, strict=True) if yes)
        if not shared or not self._charge(chain, release, shared):
            return None
        return clipped(network, batches, fold, self._settings.clip, chosen, directions)

    def _charge(self, chain: str, release: str, shared: tuple[str, ...]) -> bool:
        budget, noise = self._policy.privacy, self._settings.noise
        allowed = self._ledger.spend(budget, chain=chain, release=release, noise=noise, classes=shared)
        if not allowed:
            _log.warning("%s: the privacy budget does not allow %s; continuing without class sums", self._site, release)
        elif budget is not None:
            _log.info("%s: epsilon after %s: %.2f", self._site, release, self._ledger.total(budget.delta))
        return allowed


@dataclass(frozen=True)
class Clipped:
    """Statistics of clipped features.

    Attributes:
        sums: by class; their counts are of images.
        weights: (C,) how many images, or patients, each class counts.
        moments: upper triangle of the uncentred second moments of all of them.
    """

    sums: ClassSums
    weights: Weights
    moments: Weights

    @classmethod
    def zeros(cls, num_classes: int, size: int) -> "Clipped":
        """Return the statistics of no image."""
        return cls(ClassSums.zeros(num_classes, size), np.zeros(num_classes), np.zeros(size * (size + 1) // 2))


@torch.no_grad()
def clipped(
    network: Network,
    batches: Batches,
    fold: Fold,
    clip: float,
    chosen: npt.NDArray[np.bool_],
    directions: torch.Tensor | None = None,
) -> Clipped:
    """Make the statistics of clipped features of some classes, in one pass in evaluation mode.

    Where the table names patients or lesions, each of them counts as one: its images have equal shares of it. So one
    patient more or less moves everything together by no more than one image would.

    Args:
        batches: the images, in the order of ``fold``, which tells the patients.
        clip: largest length of a feature.
        chosen: (C,) the classes that are shared; images of others leave no trace.
        directions: (p, d) that features are projected to before they are clipped; None keeps them.
    """
    size, shares, start = _length(network, directions), image_shares(fold), 0
    made = Clipped.zeros(len(chosen), size)
    moments = torch.zeros(size, size, dtype=torch.float64)
    sums, weights = made.sums, made.weights
    for exact, labels in ((f.double(), y) for f, y in features(network, batches, "prototypes")):
        clipped = clipped_features(exact if directions is None else exact @ directions.T, clip)
        share = torch.from_numpy(shares[start : start + len(labels)] * chosen[labels.numpy()])
        weighted = clipped * share[:, None]
        sums = sums + ClassSums.from_features(weighted, labels, len(chosen))
        weights = weights + np.bincount(labels.numpy(), weights=share.numpy(), minlength=len(chosen))
        moments += weighted.T @ clipped
        start += len(labels)
    return Clipped(sums, weights, triangle_of(moments).numpy())


def _length(network: Network, directions: torch.Tensor | None) -> int:
    return network.feature_size if directions is None else len(directions)


def image_shares(fold: Fold) -> Weights:
    """Return how much each image counts, (n,): one, or its share of the patient or lesion that it shows."""
    own = units(fold)
    shares: Weights = 1.0 / np.bincount(own)[own]
    return shares
