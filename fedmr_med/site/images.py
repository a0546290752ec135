"""A site's images, opened: its folds, and the batches that training, statistics and scores take of them."""

from typing import NamedTuple

from fedmr_med import data
from fedmr_med.config import JobConfig
from fedmr_med.data import transforms
from fedmr_med.data.base import Fold, SiteData, units
from fedmr_med.data.drawing import with_validation
from fedmr_med.data.loading import Batches
from fedmr_med.data.transforms import Transform
from fedmr_med.errors import DataError
from fedmr_med.evaluation.clinical import IntArray
from fedmr_med.network import Network
from fedmr_med.site.features import SiteFeatures
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.messages import Backbone


class Images(NamedTuple):
    """Images to make statistics of: a network that makes features, batches in the order of a fold, and the fold."""

    network: Network
    batches: Batches
    fold: Fold

    @property
    def patients(self) -> IntArray | None:
        """The patient of each image (n,); None where nobody knows."""
        return None if self.fold.groups is None else units(self.fold)


def open_data(name: str, job: JobConfig, site: SiteConfig) -> SiteData:
    """Load the data of a site, whose name is for messages.

    Raises:
        DataError: it is missing or damaged, or less than two training samples.
    """
    loaded = data.load(site, job.task, seed=job.seed)
    if job.train.validation:
        loaded = with_validation(loaded, job.train.validation, smallest=site.policy.min_class_count)
    if len(loaded.train) < 2:
        raise DataError(
            f"Site {name} has {len(loaded.train)} training samples; training needs at least two.", code="data.too-few"
        )
    return loaded


class SiteBatches:
    """The batches of a site.

    Attributes:
        train: training images, augmented.
        plain: training images as they are, in the order of the fold.
        test: test images, in the order of the fold.
        validation: the images that choose, in the order of the fold; None where the job has none.

    Args:
        features: what takes the place of the images, once a task has named a frozen backbone; None for images.
    """

    train: Batches
    plain: Batches
    test: Batches
    validation: Batches | None

    def __init__(self, job: JobConfig, folds: SiteData, features: SiteFeatures | None):
        self._size, self._features = job.train.batch_size, features
        if features is None:
            task, augment = job.task, job.train.augment
            augmented = transforms.build(task.transform, train=augment, image_size=task.image_size)
            plain = transforms.build(task.transform, train=False, image_size=task.image_size)
            self._open(folds, augmented, plain, job.train.workers)

    def open(self, backbone: Backbone | None) -> None:
        """Let the features of a frozen backbone take the place of the images, where the job has one."""
        if self._features is not None:
            unchanged = transforms.unchanged
            self._open(self._features.open(backbone), unchanged, unchanged, workers=0)

    def _open(self, folds: SiteData, augmented: Transform, plain: Transform, workers: int) -> None:
        size = self._size
        self.train = Batches(folds.train, augmented, batch_size=size, workers=workers)
        self.plain = Batches(folds.plain or folds.train, plain, batch_size=size, workers=workers)
        self.test = Batches(folds.test, plain, batch_size=size, workers=workers)
        aside = folds.validation
        self.validation = None if aside is None else Batches(aside, plain, batch_size=size, workers=workers)
