"""What a site's training images are summed up to: of the classes whose sums may leave, with noise where a job has some.

Classes that are opted out or too small are left out of everything.
"""

from collections.abc import Callable
from functools import partial

import torch

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, class_counts
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.methods.plan import head_exchange
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.site.images import Images
from fedmr_med.site.ledger import Ledger
from fedmr_med.site.private import PrivateSums
from fedmr_med.site.secure import SecureSite
from fedmr_med.site.statistics import Bound, Mask, head_statistics, hold_out
from fedmr_med.site.training import class_sums
from fedmr_med.statistics.fields import Values
from fedmr_med.statistics.head import projection
from fedmr_med.statistics.moments import HELD_OUT, KEPT
from fedmr_med.statistics.shared import shared_classes
from fedmr_med.wire.kinds import HEAD, TRAIN, VALIDATE
from fedmr_med.wire.messages import TrainTask


class TrainingSums:
    """The sums of one site in one job.

    Attributes:
        counts: (C,) training images per class.
        private: makes sums with noise; None where the job has none.

    Args:
        fold: the training images.
        ledger: of the site's budget for class sums.
        secure: knows whether a vector of a secure sum has left already: there is no other one.
    """

    def __init__(self, name: str, job: JobConfig, policy: SitePolicy, fold: Fold, ledger: Ledger, secure: SecureSite):
        self._name, self._job, self.policy, self._secure = name, job, policy, secure
        self._names = job.task.class_names
        self._method = methods.build(job.method)
        self.counts = class_counts(fold, job.task.num_classes)
        dominance = policy.dominance(brings_weights=job.model.weights is not None)
        self._bound = None if dominance is None else Bound.of(dominance, fold)
        self._enough = self.counts > 0 if self._bound is None else self._bound.enough(fold.labels, len(self._names))
        private = job.federation.private
        self.private = None if private is None else PrivateSums(name, job, private, policy, ledger)

    def prototype_classes(self) -> Mask:
        """Return the mask (C,) of the classes whose prototype this site sends in this job."""
        return self._shareable() & self._method.uses_prototypes

    def statistics_classes(self) -> Mask:
        """Return the mask (C,) of the classes whose statistics this site sends for a closed-form head in this job."""
        return self._shareable() & (head_exchange(self._job) != "none")

    def package_classes(self, kind: str, counts: IntArray) -> Mask:
        """Return the mask (C,) of the classes whose images, ``counts`` of each, statistics of other packages are shown.

        Of training images they hold to the rule of too few patients like the other sums without noise.
        """
        private = self.private is not None
        classes = shared_classes(kind, counts, self.policy, self._names, private=private)
        return classes if kind == VALIDATE else classes & self._enough

    def _shareable(self) -> Mask:
        """Return the mask (C,) of the classes whose sums may leave: with noise where a budget asks for it."""
        noisy = self.private is not None  # fewer patients are no matter then
        allowed = noisy or self.policy.privacy is None
        return self.policy.shareable_classes(self.counts, self._names) & (self._enough | noisy) & allowed

    def prototypes(
        self, task: TrainTask, images: Images, *, keep_withheld: bool
    ) -> tuple[ClassSums | None, ClassSums | None]:
        """Make the class sums that may leave, with noise where the job has some, and those that stay.

        Nothing is computed where neither is wanted.
        """
        shared = torch.from_numpy(self.prototype_classes() & (self.private is None))
        sums = None
        if shared.any() or keep_withheld:
            unit = self._method.unit_prototypes
            sums = class_sums(images.network, images.batches, len(self._names), unit=unit, bound=self._bounded())
        withheld = (self.counts > 0) & ~self.prototype_classes()
        stays = None if sums is None or not keep_withheld else sums.only(torch.from_numpy(withheld))
        if self.private is not None:
            return self._noisy_prototypes(self.private, task, images), stays
        return (None if sums is None or not shared.any() else sums.only(shared)), stays

    def _bounded(self) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
        """Return what keeps single images from standing out in the sums of the classes that leave."""
        return None if self._bound is None else partial(self._bound, classes=self.prototype_classes())

    def _noisy_prototypes(self, private: PrivateSums, task: TrainTask, images: Images) -> ClassSums | None:
        due = self._method.uses_prototypes and private.due(task.round)
        if not due or self._secure.settled(task.chain, task.release(TRAIN)):
            return None
        return private.sums(*images, chain=task.chain, release=task.release(TRAIN))

    def head(self, task: TrainTask, open_images: Callable[[], Images]) -> dict[str, Values]:
        """Make the statistics for a closed-form head, by part; without noise, those of the classes that may leave.

        ``open_images`` loads the model and opens the images; nobody calls it where nothing is made of them.
        """
        if self.private is not None:
            if self._secure.settled(task.chain, task.release(HEAD)):
                return {}
            return self.private.head(*open_images(), chain=task.chain, release=task.release(HEAD))
        shared = self._shareable()
        if not shared.any():
            return {}
        network, batches, fold = open_images()
        settings = self._job.head
        held = hold_out(fold, shared, fraction=settings.held_out, smallest=self.policy.min_class_count, site=self._name)
        directions = projection(self._job.seed, network.feature_size, settings.projection)
        kept, held_out = head_statistics(
            network, batches, len(self._names), shared, held, directions=directions, bound=self._bound
        )
        made = {KEPT.part: KEPT.values(kept)}
        return made | {HELD_OUT.part: HELD_OUT.values(held_out)} if held.any() else made
