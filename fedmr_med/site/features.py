"""A site's features of a frozen backbone: made once, kept on disk, and trained on as images are elsewhere."""

import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedmr_med import models
from fedmr_med.arrays import Arrays, difference, forms_of
from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.feature_cache import Features, fingerprint, open_features
from fedmr_med.data.loading import Batches
from fedmr_med.errors import WireError
from fedmr_med.models.job_network import feature_network
from fedmr_med.network import Network
from fedmr_med.privacy.refusals import NoFeaturesError
from fedmr_med.process import kept_memory
from fedmr_med.site.received import check_finite
from fedmr_med.site.training import evaluated, place
from fedmr_med.site.weights import features_only
from fedmr_med.wire.messages import Backbone, digest_of

_BATCH = 64  # the same for every job: features may depend on it in their last bits

_log = logging.getLogger(__name__)


class SiteFeatures:
    """The folds of one site as features, opened once per process and backbone.

    Args:
        folder: the site's cache; None uses the user's.
    """

    def __init__(self, job: JobConfig, data: SiteData, folder: Path | None = None):
        self._job, self._data, self._folder = job, data, folder
        self._opened: tuple[str, SiteData] | None = None

    def open(self, backbone: Backbone | None) -> SiteData:
        """Return the site's data with the features of its images in their place.

        Raises:
            WireError: the task names no backbone, or its arrays do not fit the job or their digest.
            NoFeaturesError: the features are not there yet, and neither are the arrays that make them.
            DataError: the cache cannot be used.
        """
        if backbone is None:
            raise WireError("the task does not name the frozen part of the network", code="wire.form", key="digest")
        if self._opened is None or self._opened[0] != backbone.digest:
            data = self._data
            train, test = (feature_fold(self._job, fold, backbone, self._folder) for fold in (data.train, data.test))
            aside = data.validation
            validation = None if aside is None else feature_fold(self._job, aside, backbone, self._folder)
            self._opened = backbone.digest, replace(data, train=train, test=test, validation=validation)
        return self._opened[1]


def feature_fold(job: JobConfig, fold: Fold, backbone: Backbone, folder: Path | None = None) -> Fold:
    """Return the features of a fold's images, from the cache or into it.

    Where they are in the cache, the digest of the backbone is enough.

    Raises:
        WireError, NoFeaturesError, DataError: see :meth:`SiteFeatures.open`.
    """
    network = feature_network(job)
    made_from = {
        "backbone": backbone.digest,
        "model": job.model.model_dump(mode="json", exclude={"freeze_backbone": True, "options": {"pretrained"}}),
        "task": job.task.model_dump(mode="json", include={"image_size", "channels", "transform"}),
        "device": device().type,
        "images": fingerprint(fold),
    }

    def make() -> Features:
        _load(network, backbone)
        return extract(network, fold, job)

    features = open_features(made_from, make, shape=(len(fold), network.feature_size), folder=folder)
    return Fold(features, fold.labels, fold.groups)


def extract(network: Network, fold: Fold, job: JobConfig) -> Features:
    """Return the features (n, d) float32 of a fold's images, in evaluation mode and without augmentation."""
    started = time.monotonic()
    network = place(network, device())
    features = np.empty((len(fold), network.feature_size), dtype=np.float32)
    start = 0
    with kept_memory():
        batches = Batches.of(fold, job.task, batch_size=_BATCH, workers=job.train.workers)
        for found, _, labels in evaluated(network, batches, "features"):
            features[start : start + len(labels)] = found.float().cpu().numpy()
            start += len(labels)
    _log.info("Made the features of %d images, once, in %.0f s.", len(fold), time.monotonic() - started)
    return features


def device() -> torch.device:
    """Return where features are made."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _load(network: Network, backbone: Backbone) -> None:
    """Put the frozen arrays into a network, if they are what their digest says."""
    if not backbone.arrays:
        raise NoFeaturesError(
            "the features of the frozen network are not there, and the task has its digest alone",
            code="wire.no-features",
        )
    own: Arrays = models.state_arrays(network)
    expected = features_only(own)
    if found := difference(backbone.arrays, forms_of(expected)):
        raise WireError(f"the frozen part of the network {found}", code="wire.form", key="backbone")
    check_finite("frozen part of the network", backbone.arrays)
    if digest_of(backbone.arrays) != backbone.digest:
        raise WireError(
            "the frozen part of the network is not what its digest says", code="wire.digest", key="backbone"
        )
    models.load_arrays(network, own | backbone.arrays)
