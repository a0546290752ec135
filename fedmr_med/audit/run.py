"""The audit of one site: the same images under each defence, and every attack on what leaves then."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F

from fedmr_med.audit import attacks
from fedmr_med.audit.attacks import Floats, Ints, Release
from fedmr_med.config import JobConfig
from fedmr_med.data.base import class_counts
from fedmr_med.data.demo import effective_job
from fedmr_med.data.loading import Batches
from fedmr_med.models.base import Network
from fedmr_med.privacy.mechanisms import Clip, Gaussian
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.release import released_scores
from fedmr_med.prototypes import ClassSums
from fedmr_med.schema import Strict
from fedmr_med.secure.fixed import BITS, Field, Layout
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.secure.messages import Release as Sum
from fedmr_med.secure.messages import Roster
from fedmr_med.secure.participant import Participant
from fedmr_med.server.state import initial_state, train_task
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.training import to_device
from fedmr_med.sites import SiteConfig

NONE, POLICY, SMALL_CELLS, NOISE, SECURE = "none", "policy", "k = 11", "noise", "secure"
_OPEN = SitePolicy(share_prototypes=True, min_class_count=1, share_metrics="per_class", round_samples=1, training=None)
_SMALL = SitePolicy(share_prototypes=True, min_class_count=11, share_metrics="per_class")
_LEFT_OUT = 8  # images that differencing tries


class Finding(Strict):
    """How far an attack gets against a defence: from 0, nothing, to 1."""

    defence: str
    attack: str
    success: float


class Audit(Strict):
    """The findings of one site.

    Attributes:
        site: its name.
        images: training and test images.
        classes: (C,) training images of each class; for the site's own eyes.
        demo: whether generated pictures stood in for data.
        noise: multiplier of the defence ``noise``.
        findings: all of them.
    """

    site: str
    images: tuple[int, int]
    classes: dict[str, int]
    demo: bool
    noise: float
    findings: tuple[Finding, ...]

    def worst(self, defence: str) -> Finding:
        """Return what gets furthest against a defence."""
        return max((f for f in self.findings if f.defence == defence), key=lambda finding: finding.success)


@dataclass(frozen=True)
class Seen:
    """What a network makes of a fold: features (n, d), logits (n, C), labels (n,)."""

    features: Floats
    logits: Floats
    labels: Ints

    @property
    def losses(self) -> Floats:
        """Cross-entropy of each image, (n,)."""
        logits, labels = torch.from_numpy(self.logits), torch.from_numpy(self.labels)
        losses: Floats = F.cross_entropy(logits, labels, reduction="none").numpy()
        return losses


def audit(name: str, job: JobConfig, site: SiteConfig, *, noise: float = 2.0) -> Audit:
    """Attack what a site would release in a job, under no defence, its own policy, and each defence by itself.

    One round is trained from the job's initial model; nothing leaves this process.

    Args:
        name: of the site.
        job: its settings.
        site: the site's settings.
        noise: multiplier of the defence ``noise``; features are clipped to their median length.

    Raises:
        DataError: the site has no usable data.
    """
    job = effective_job(job, {name: site}).override({"federation": {"secure": "none", "private": None}})
    state = initial_state(job)
    with TemporaryDirectory() as folder:
        open_site = site.model_copy(update={"policy": _OPEN})
        hospital = Hospital(name, job, open_site, Path(folder))
        task = train_task(state, job, "audit")
        hospital.validate(task)
        bias = hospital.network.classifier.bias.detach().cpu().double().numpy()
        train, test = (_seen(hospital.network, b) for b in (hospital.prototype_batches, hospital.test_batches))
        hospital.train(task)
        trained = [_seen(hospital.network, b).losses for b in (hospital.prototype_batches, hospital.test_batches)]
    counts, names = class_counts(hospital.data.train, job.task.num_classes), job.task.class_names
    tested = class_counts(hospital.data.test, job.task.num_classes)
    own, size = site.policy.restricted_by(job.policy), train.features.shape[1]
    shares = F.softmax(torch.from_numpy(train.logits).double(), 1).mean(0).numpy()
    gradient = shares - counts / counts.sum()
    loss = attacks.advantage(-trained[0], -trained[1])
    left_out = np.random.default_rng(0).permutation(len(train.labels))[:_LEFT_OUT]
    clip = Clip(float(np.median(np.linalg.norm(train.features, axis=1))))
    defences: Mapping[str, tuple[SitePolicy, Release]] = {
        NONE: (_OPEN, _plain(_OPEN, names)),
        POLICY: (own, _plain(own, names)),
        SMALL_CELLS: (_SMALL, _plain(_SMALL, names)),
        NOISE: (_SMALL, _noisy(Gaussian(noise, clip.norm), clip, _SMALL, names)),
        SECURE: (_SMALL, _masked(_plain(_SMALL, names), len(names), size)),
    }
    findings = []
    for defence, (policy, release) in defences.items():
        released = release(train.features, train.labels)
        scores = None if defence == SECURE else released_scores(test.logits, test.labels, policy, names)
        samples = policy.released_samples(counts, names)
        found = {
            "class counts": attacks.counts_read(released, counts),
            "withheld images by subtraction": attacks.withheld_by_subtraction(released, samples, counts),
            "test counts from the confusion matrix": attacks.rows_read(scores.confusion if scores else None, tested),
            "class counts from one large step": 0.0
            if policy.training is not None
            else attacks.histogram_from_bias(gradient, bias, counts),
            "one image by differencing": attacks.differencing(release, train.features, train.labels, left_out),
            "prototype is one image": attacks.nearest_image(released, train.features),
            "membership by prototype": attacks.membership_by_prototype(
                released, (train.features, train.labels), (test.features, test.labels)
            ),
            "membership by loss of the update": loss,
        }
        findings += [Finding(defence=defence, attack=attack, success=value) for attack, value in found.items()]
    return Audit(
        site=name,
        images=(len(train.labels), len(test.labels)),
        classes=dict(zip(names, counts.tolist(), strict=True)),
        demo=hospital.data.is_demo,
        noise=noise,
        findings=tuple(findings),
    )


def _plain(policy: SitePolicy, names: tuple[str, ...]) -> Release:
    """Return what leaves under a policy alone."""

    def release(features: Floats, labels: Ints) -> ClassSums | None:
        if policy.privacy is not None:
            return None
        sums = ClassSums.from_features(torch.from_numpy(features), torch.from_numpy(labels), len(names))
        left = policy.suppression(names).sums(sums)
        return left if bool((left.counts > 0).any()) else None

    return release


def _noisy(gaussian: Gaussian, clip: Clip, policy: SitePolicy, names: tuple[str, ...]) -> Release:
    """Return what leaves of a site alone with noise on it."""

    def release(features: Floats, labels: Ints) -> ClassSums | None:
        clipped = clip.features(torch.from_numpy(features).double())
        sums = ClassSums.from_features(clipped, torch.from_numpy(labels), len(names))
        noisy = gaussian.add_to(sums, sums.counts.double().numpy())
        least = max(policy.min_class_count, int(np.ceil(4 * gaussian.counts_scale)))
        left = noisy.only(noisy.counts >= least)
        return left if bool((left.counts > 0).any()) else None

    return release


def _masked(inner: Release, classes: int, size: int) -> Release:
    """Return the site's masked vector of a secure sum with two others, read as if it were not masked."""
    layout = Layout({"counts": Field((classes,)), "sums": Field((classes, size), BITS)})

    def release(features: Floats, labels: Ints) -> ClassSums | None:
        left = inner(features, labels)
        values = {} if left is None else {"counts": left.counts.numpy(), "sums": left.sums.numpy()}
        with TemporaryDirectory() as folder:
            sites = {name: Participant(name, Path(folder) / name, UNSIGNED) for name in ("site", "x", "y")}
            for name, site in sites.items():
                site.hold("audit", layout.pack(values if name == "site" else {}))
            roster = Roster.of([site.keys("audit", "audit") for site in sites.values()])
            which = Sum("audit", "audit", "audit")
            offers = [site.offer(which, roster) for site in sites.values()]
            seen = layout.unpack(sites["site"].mask(which, roster, offers).vector)
        return ClassSums(torch.from_numpy(seen["sums"]), torch.from_numpy(seen["counts"]))

    return release


@torch.no_grad()
def _seen(network: Network, batches: Batches) -> Seen:
    network.eval()
    device = next(network.parameters()).device
    rows = [
        (*(part.cpu().numpy() for part in network(to_device(images, device))), labels.numpy())
        for images, labels in batches.epoch("audit", shuffle=False)
    ]
    return Seen(*(np.concatenate(column) for column in zip(*rows, strict=True)))
