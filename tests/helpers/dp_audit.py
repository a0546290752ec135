"""An empirical audit of differential privacy: what releases with and without a canary prove about epsilon, at least."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import beta

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.data import transforms
from fedmr_med.data.base import Fold
from fedmr_med.data.loading import Batches
from fedmr_med.methods.local import LocalRound
from fedmr_med.models.job_network import ClassifierOnly
from fedmr_med.network import Network
from fedmr_med.privacy.accountant import DELTA, PrivacyBudget
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import Prototypes
from fedmr_med.site import criterion
from fedmr_med.site.ledger import Ledger, Ledgers
from fedmr_med.site.private import PrivateSums
from fedmr_med.site.private_training import PrivateTraining
from tests.helpers.small import lenient, small_job

SIZE, CLASSES = 40, 8
RICH = PrivacyBudget(epsilon=1000, min_noise=1e-3)
POLICY = lenient(share_prototypes=True, share_metrics="per_class", privacy=RICH, training_privacy=RICH)
NOTHING = POLICY.model_copy(update={"share_prototypes": False})

Release = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Audited:
    """A mechanism on two data sets that differ by the canary.

    Attributes:
        present, absent: make one release each, (numbers,).
        difference: (numbers,) what the canary changes in a release without noise, over the noise of each number.
        reported: epsilon of one release, as the site's ledger has it.
    """

    present: Release
    absent: Release
    difference: np.ndarray
    reported: float

    def proven(self, runs: int, confidence: float = 0.95) -> float:
        """Return what epsilon is at least, by ``runs`` releases each: half of them choose the attack, half test it."""
        seen, unseen = (np.array([self._readings(make()) for _ in range(runs)]) for make in (self.present, self.absent))
        half, tail = runs // 2, (1 - confidence) / 2
        attacks = [
            (number, sign, cut)
            for number in range(seen.shape[1])
            for sign in (1, -1)
            for cut in np.quantile(sign * unseen[:half, number], np.linspace(0.5, 1, 21))
        ]

        def bound(rows: slice, attack: tuple[int, int, float]) -> float:
            number, sign, cut = attack
            hits, alarms = ((sign * part[rows, number] > cut).sum() for part in (seen, unseen))
            count = len(seen[rows])
            low = beta.ppf(tail, hits, count - hits + 1) if hits else 0.0
            high = beta.ppf(1 - tail, alarms + 1, count - alarms) if alarms < count else 1.0
            return max(0.0, math.log((low - DELTA) / high)) if low > DELTA else 0.0

        best = max(attacks, key=lambda attack: bound(slice(half), attack))
        return bound(slice(half, None), best)

    def _readings(self, release: np.ndarray) -> tuple[float, float]:
        """Return the best linear reading of the canary, and how far the numbers vary."""
        return float(release @ self.difference), float(release.std())


def audited(kind: str, folder: Path, *, grouped: bool, noise: float = 1.0, rate: float = 1.0) -> Audited:
    """Return a mechanism of a site for an audit.

    The canary is one image, or a patient of ten; it is as long as the clip lets it, and alone in its class.

    Args:
        kind: ``prototypes``, ``head`` or ``training``.
        folder: for ledgers.
        grouped: whether the data name patients.
        noise: relative to the sensitivity.
        rate: of the draws of training.
    """
    images = 10 if grouped else 1
    items = np.random.default_rng(0).normal(size=(4, SIZE)).astype(np.float32) / 10
    canary = np.zeros((images, SIZE), np.float32)
    canary[:, 0] = 100
    groups = ("a", "b", "c", "d", *["canary"] * images) if grouped else None
    whole = Fold(np.concatenate([items, canary]), np.array([0, 0, 1, 1] + [2] * images), groups)
    without = Fold(items, whole.labels[:4], None if groups is None else groups[:4])
    made = _training if kind == "training" else _sums
    return made(kind, folder, (whole, without), noise, rate)


def _network() -> Network:
    torch.manual_seed(0)
    whole = Network()
    whole.feature_size, whole.classifier = SIZE, torch.nn.Linear(SIZE, CLASSES)
    return ClassifierOnly(whole)


def _job(**changes: Any) -> JobConfig:
    return small_job("fedavg", loss={"class_weights": "none"}, **changes)


def _sums(kind: str, folder: Path, folds: Sequence[Fold], noise: float, rate: float) -> Audited:
    private = {"clip": 1.0, "noise": noise}
    # A secure total of three sites, of which one tells its own part, and one has nothing.
    job = _job(federation={"min_sites": 3, "secure": "statistics", "private": private})
    network, count = _network(), iter(range(10**9))

    def total(fold: Fold) -> np.ndarray:
        return released(fold, POLICY) + released(fold, NOTHING)

    def released(fold: Fold, policy: SitePolicy) -> np.ndarray:
        ledger = Ledger(folder / f"{next(count)}.jsonl")
        assert job.federation.private is not None
        sums = PrivateSums("site", job, job.federation.private, policy, ledger)
        images = network, Batches(fold, transforms.unchanged, batch_size=8), fold
        if kind == "prototypes":
            content = sums.sums(*images, chain="c", release="train-0")
            assert content is not None
            return np.concatenate([content.sums.numpy().ravel(), content.counts.numpy()])
        (values,) = sums.head(*images, chain="c", release="head-0").values()
        return np.concatenate([values[name].ravel() for name in ("sums", "counts", "moments")])

    assert job.federation.private is not None
    gaussian = job.federation.private.gaussian if kind == "prototypes" else job.federation.private.head_gaussian
    numbers = CLASSES * SIZE, CLASSES, 0 if kind == "prototypes" else SIZE * (SIZE + 1) // 2
    difference = np.zeros(sum(numbers))
    difference[2 * SIZE] = 1 / gaussian.sums_scale**2  # of a feature of length 1 in the class of the canary
    difference[numbers[0] + 2] = 1 / gaussian.counts_scale**2
    if kind == "head":
        difference[numbers[0] + numbers[1]] = 1 / gaussian.moments_scale**2
    released(folds[0], POLICY)
    ledger = Ledger(folder / f"{next(count) - 1}.jsonl")
    return Audited(lambda: total(folds[0]), lambda: total(folds[1]), difference, ledger.total(DELTA))


def _training(kind: str, folder: Path, folds: Sequence[Fold], noise: float, rate: float) -> Audited:
    told = POLICY.round_samples
    job = _job(
        train={
            "private": {"clip": 1.0, "noise": noise},
            "updates": 1,
            "batch_size": round(rate * told),
            "optimizer": "sgd",
            "lr": 1.0,
            "momentum": 0.0,
            "weight_decay": 0.0,
        }
    )
    start, loss = _network().state_dict(), criterion.build(job.loss, np.ones(CLASSES, np.int64))

    def released(fold: Fold, settings: JobConfig = job) -> np.ndarray:
        private = private_training(settings, fold, folder)
        network = _network()
        client = methods.build(settings.method).client(_local_round(network, private.samples))
        private.train(network, client, Batches(fold, transforms.unchanged, batch_size=8), loss)
        moved = [(start[name] - tensor).numpy().ravel() for name, tensor in network.state_dict().items()]
        return np.concatenate(moved).astype(np.float64)

    whole = job.override({"train": {"private": {"noise": 1e-6}, "batch_size": told}})
    present, absent = (released(fold, whole) for fold in folds)
    site = private_training(job, folds[0], folder)
    site.charge(1, chain="c", release="train-0")
    return Audited(lambda: released(folds[0]), lambda: released(folds[1]), present - absent, site.ledger.total(DELTA))


def private_training(job: JobConfig, fold: Fold, folder: Path, policy: SitePolicy = POLICY) -> PrivateTraining:
    assert job.train.private is not None
    return PrivateTraining("site", job, job.train.private, policy, fold, Ledgers.of(folder).training)


def _local_round(network: Network, samples: int) -> LocalRound:
    return LocalRound(
        network=network,
        received={name: parameter.detach().clone() for name, parameter in network.named_parameters()},
        prototypes=Prototypes(
            torch.zeros(CLASSES, SIZE), torch.zeros(CLASSES, dtype=torch.bool), torch.zeros(CLASSES, dtype=torch.int64)
        ),
        counts=torch.zeros(CLASSES, dtype=torch.int64),
        server_state={},
        client_state={},
        samples=samples,
        steps=1,
        lr=1.0,
        momentum=0.0,
        round=0,
        rounds=1,
        generator=torch.Generator(),
    )
