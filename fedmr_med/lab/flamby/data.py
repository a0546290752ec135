"""The data of a comparison: train folds, test folds, and how far they share lesions."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedmr_med import data
from fedmr_med.config import TaskConfig
from fedmr_med.data.base import Fold, joined
from fedmr_med.data.flamby_isic import (
    LESIONS_FILE,
    PREPARED_FOLDER,
    find_root,
    find_split,
    leaked_images,
    read_centers,
    read_split,
)
from fedmr_med.data.loading import Batches
from fedmr_med.errors import DataError
from fedmr_med.evaluation.metrics import Scores, confusion_matrix, scores
from fedmr_med.lab.flamby.request import POOLED, CompareRequest, site_name
from fedmr_med.models import Network
from fedmr_med.seeding import numpy_generator
from fedmr_med.site.training import outputs


@dataclass(frozen=True)
class Leakage:
    """How many of the test images are of a known lesion, and of one that is also in a train fold."""

    leaked: int
    known: int
    tests: int

    def sentence(self, left_out: bool) -> str:
        """Return what a reader of the results has to know."""
        if not self.known:
            return f"Lesions of the {self.tests} test images are not known ({LESIONS_FILE} is not in the folder)."
        share = f"{self.leaked} of {self.known} test images with a known lesion"
        ending = "they are left out here." if left_out else "they count here; --without-leaked leaves them out."
        return f"{share} ({100 * self.leaked / self.known:.0f} %) show a lesion that is also in a train fold: {ending}"


@dataclass(frozen=True)
class ComparisonData:
    """The folds of each site, the same for every method. Leakage is before anything was left out; the demo has none."""

    task: TaskConfig
    train: dict[str, Fold]
    test: dict[str, Fold]
    leakage: Leakage | None
    batch: int

    def pooled_train(self) -> Fold:
        """Return the train folds of all sites in one."""
        return joined(tuple(self.train.values()))

    def score(self, network: Network) -> dict[str, Scores]:
        """Return the scores of a network on the test fold of each site, and on all of them pooled."""
        confusions = {}
        for site, fold in self.test.items():
            logits, labels = outputs(network, Batches.of(fold, self.task, batch_size=self.batch))
            confusions[site] = confusion_matrix(labels, logits.argmax(1), self.task.num_classes)
        pooled = {POOLED: np.sum(list(confusions.values()), axis=0)}
        return {test: scores(confusion) for test, confusion in (pooled | confusions).items()}


def present_centers(root: Path, flamby: Path | None) -> tuple[int, ...]:
    """Return the centres that have an image in a prepared folder.

    Raises:
        DataError: the folder is not a prepared one, or holds no image of the table.
    """
    root = find_root(root)
    centers = read_split(find_split(root, flamby=flamby))
    images = {path.name for path in (root / PREPARED_FOLDER).iterdir()}
    present = tuple(number for number, rows in enumerate(centers) if any(row.image in images for row in rows))
    if not present:
        raise DataError(f"{root / PREPARED_FOLDER} holds none of the images in FLamby's table.", code="data.empty")
    return present


@lru_cache(maxsize=1)
def load_data(request: CompareRequest) -> ComparisonData:
    """Load the folds of all centres and cut the test folds as asked for; those of the last request are kept.

    Raises:
        DataError: the data is missing or damaged, or nothing is left to test on.
    """
    task = request.job("fedavg", request.seeds[0]).task
    folds = {name: data.load(site, task, seed=0) for name, site in request.sites().items()}
    rows = [] if request.is_demo else read_centers(find_root(request.data), flamby=request.flamby)
    leaked = leaked_images([rows[center] for center in request.centers if rows])
    known, tests = 0, {}
    for center in request.centers:
        name, fold = site_name(center), folds[site_name(center)].test
        tested = [rows[center][row] for row in fold.rows] if rows else []
        known += sum(bool(row.group) for row in tested)
        kept = np.arange(len(fold))
        if request.without_leaked and rows:
            kept = np.flatnonzero([row.image not in leaked for row in tested])
        order = numpy_generator("max test", center).permutation(len(kept))
        kept = kept[np.sort(order[: request.max_test])]
        if not len(kept):
            why = f"No test image of centre {center} is left; leave it out with --centers."
            raise DataError(why, code="data.empty", key="--centers")
        tests[name] = fold.subset(kept)
    leakage = Leakage(len(leaked), known, sum(len(site.test) for site in folds.values())) if rows else None
    return ComparisonData(task, {name: site.train for name, site in folds.items()}, tests, leakage, request.batch)
