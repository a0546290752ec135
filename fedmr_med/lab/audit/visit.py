"""A site before and after one round: what the networks that the server has make of its images."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmr_med import models
from fedmr_med.config import JobConfig
from fedmr_med.data.base import class_counts
from fedmr_med.data.loading import Batches
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.lab.audit.attacks import Floats, Ints
from fedmr_med.lab.audit.attacks.inversion import FeaturesOf
from fedmr_med.lab.audit.defences import OPEN
from fedmr_med.models.job_network import whole_network
from fedmr_med.network import Network
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.training import to_device
from fedmr_med.sites import SiteConfig


@dataclass(frozen=True)
class Seen:
    """What a network makes of a fold: features (n, d), logits (n, C), labels (n,)."""

    features: Floats
    logits: Floats
    labels: Ints

    @cached_property
    def losses(self) -> Floats:
        """Cross-entropy of each image, (n,)."""
        logits, labels = torch.from_numpy(self.logits), torch.from_numpy(self.labels)
        losses: Floats = F.cross_entropy(logits, labels, reduction="none").numpy()
        return losses


@dataclass(frozen=True)
class Folds:
    """What a network makes of both folds of a site."""

    train: Seen
    test: Seen


@dataclass(frozen=True)
class Visit:
    """One round at a site, whose network is the trained one afterwards.

    Attributes:
        backbone: the frozen part of the network, by name; empty where all of it is trained.
        bias: (C,) of the classifier that was sent.
        before, after: what the model that was sent, and the one that comes back, make of its images.
    """

    hospital: Hospital
    backbone: models.Arrays
    bias: Floats
    before: Folds
    after: Folds

    @property
    def names(self) -> tuple[str, ...]:
        """The classes."""
        return self.hospital.job.task.class_names

    @cached_property
    def counts(self) -> Ints:
        """Training images of each class, (C,)."""
        return class_counts(self.hospital.data.train, len(self.names))

    @cached_property
    def test_counts(self) -> Ints:
        """Test images of each class, (C,)."""
        return class_counts(self.hospital.data.test, len(self.names))

    def features_of(self) -> FeaturesOf:
        """Return the trained network from images to what class sums are made of, in evaluation mode."""
        hospital = self.hospital
        network = hospital.network
        if hospital.job.model.freeze_backbone:
            network = whole_network(hospital.job).to(hospital.device)
            models.load_arrays(network, self.backbone | models.state_arrays(hospital.network))
        network.eval().requires_grad_(False)
        unit = hospital.method.unit_prototypes

        def features(images: Tensor) -> Tensor:
            found: Tensor = network(to_device(images, hospital.device))[0]
            return F.normalize(found, dim=1) if unit else found

        return features

    def images(self) -> Iterator[Tensor]:
        """Yield the images of both folds, train first, as the network takes them in evaluation mode."""
        job, data = self.hospital.job, self.hospital.data
        for fold in (data.plain or data.train, data.test):
            for images, _ in Batches.of(fold, job.task, batch_size=job.train.batch_size).epoch("audit", shuffle=False):
                yield images


def visit(name: str, job: JobConfig, site: SiteConfig, state: GlobalState) -> Visit:
    """Let a site train one round from a global state, without floors, and look at its images before and after.

    Raises:
        DataError: the site has no usable data, or no test images to compare with.
        ConfigError: the training diverged, so that there is nothing to attack.
    """
    with TemporaryDirectory() as folder:
        hospital = Hospital(name, job, site.model_copy(update={"policy": OPEN}), Path(folder))
        if not len(hospital.data.test):
            why = f"Site {name} has no test images, which an audit compares its training images with."
            raise DataError(why, code="data.empty")
        task = train_task(state, job, "audit")
        hospital.validate(task)
        bias = hospital.network.classifier.bias.detach().cpu().double().numpy()
        before = _folds(hospital)
        hospital.train(task)
        backbone = {} if state.backbone is None else state.backbone.arrays
        after = _folds(hospital)
    lengths = np.linalg.norm(after.train.features, axis=1)
    if not np.isfinite(lengths).all() or not np.median(lengths):
        why = f"The training of {name} left features that are zero or not finite: lower train.lr of the job."
        raise ConfigError(why, code="audit.features", key="train.lr")
    return Visit(hospital, backbone, bias, before, after)


def _folds(hospital: Hospital) -> Folds:
    unit = hospital.method.unit_prototypes
    return Folds(*(_seen(hospital.network, b, unit) for b in (hospital.batches.plain, hospital.batches.test)))


@torch.no_grad()
def _seen(network: Network, batches: Batches, unit: bool) -> Seen:
    network.eval()
    device = next(network.parameters()).device
    rows = []
    for images, labels in batches.epoch("audit", shuffle=False):
        features, logits = network(to_device(images, device))
        features = F.normalize(features, dim=1) if unit else features
        rows.append((features.float().cpu().numpy(), logits.float().cpu().numpy(), labels.numpy()))
    return Seen(*(np.concatenate(column) for column in zip(*rows, strict=True)))
