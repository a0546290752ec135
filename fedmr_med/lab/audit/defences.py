"""What leaves of the same images under each defence, made by the parts that make it in a job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from fedmr_med.config import JobConfig
from fedmr_med.lab.audit.attacks import Floats, Ints, Release
from fedmr_med.lab.audit.sums import RELEASE, Rehearsal
from fedmr_med.privacy.mechanisms import Gaussian, clipped_features
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.secure.participant import Participant
from fedmr_med.statistics.fields import BITS, Field, Layout, Values

NONE, POLICY, SMALL_CELLS, NOISE, SECURE, TOTAL = "none", "policy", "k = 11", "noise", "secure", "secure total"
DEFENCES = (NONE, POLICY, SMALL_CELLS, NOISE, SECURE, TOTAL)
SMALL = SitePolicy(share_prototypes=True, min_class_count=11, min_cell_count=1, share_metrics="per_class")
OPEN = SMALL.model_copy(update={"min_class_count": 1, "round_samples": 1, "training": None})

PutIn = tuple[ClassSums | None, Ints | None]
"""What a site puts into a secure sum: class sums, and a confusion matrix (C, C)."""

_SITE = "audited"


@dataclass(frozen=True)
class Defence:
    """The site's policy, what leaves of class sums, and what the server sees of the confusion matrix (C, C)."""

    policy: SitePolicy
    release: Release
    scores: Callable[[Ints | None], Ints | None] = lambda matrix: matrix


def plain(policy: SitePolicy, names: tuple[str, ...]) -> Release:
    """Return what leaves under a policy alone."""

    def release(features: Floats, labels: Ints) -> ClassSums | None:
        if policy.privacy is not None:
            return None
        sums = ClassSums.from_features(torch.from_numpy(features), torch.from_numpy(labels), len(names))
        return _any(sums.only(torch.from_numpy(policy.shareable_classes(sums.counts.numpy(), names))))

    return release


def noisy(gaussian: Gaussian, policy: SitePolicy, names: tuple[str, ...]) -> Release:
    """Return what leaves of a site alone with noise on it."""
    chosen = policy.chosen_classes(names)

    def release(features: Floats, labels: Ints) -> ClassSums | None:
        clipped = clipped_features(torch.from_numpy(features).double(), gaussian.norm)
        sums = ClassSums.from_features(clipped, torch.from_numpy(labels), len(names)).only(torch.from_numpy(chosen))
        noise = gaussian.add_to(sums, sums.counts.double().numpy())
        least = max(policy.min_class_count, int(np.ceil(4 * gaussian.counts_scale)))
        return _any(noise.only(torch.from_numpy(chosen) & (noise.counts >= least)))

    return release


@dataclass(frozen=True)
class Cohort:
    """The sites of a secure sum: what each of the ``others`` puts in, for C classes and features of a size."""

    others: Mapping[str, PutIn]
    classes: int
    size: int

    def defence(self, policy: SitePolicy, inner: Release, *, opened: bool) -> Defence:
        """Return what the server gets of the site where its release goes into a sum, read as if it were the site's own.

        That is the masked vector; and the total, once that is ``opened``.
        """

        def release(features: Floats, labels: Ints) -> ClassSums | None:
            seen = self._seen((inner(features, labels), None), opened)
            sums = ClassSums(torch.from_numpy(seen["sums"]), torch.from_numpy(seen["counts"]))
            return _any(sums) if opened else sums

        return Defence(policy, release, lambda matrix: self._seen((None, matrix), opened)["confusion"])

    def _seen(self, own: PutIn, opened: bool) -> Values:
        """Return what the server sees of a sum, which has keys and masks of its own."""
        layout = Layout({
            "counts": Field((self.classes,)),
            "sums": Field((self.classes, self.size), BITS),
            "confusion": Field((self.classes, self.classes)),
        })  # fmt: skip
        held = {_SITE: own, **(self.others or dict.fromkeys(("x", "y"), (None, None)))}
        with TemporaryDirectory() as folder:
            members = {name: Participant(name, Path(folder) / name, UNSIGNED) for name in held}
            for name, (sums, scores) in held.items():
                values = {} if sums is None else {"counts": sums.counts.numpy(), "sums": sums.sums.numpy()}
                values |= {} if scores is None else {"confusion": scores}
                members[name].hold(RELEASE.name, layout.pack(values))
            rehearsal = Rehearsal(members, layout.size)
            masked = rehearsal.masked().vectors[_SITE]
            return layout.unpack(rehearsal.total() if opened else masked)


def defences(
    job: JobConfig, policy: SitePolicy, features: Floats, *, noise: float, cohort: Mapping[str, PutIn]
) -> dict[str, Defence]:
    """Return the defences of a site with its own policy, by their names.

    ``noise`` is a multiplier; ``features`` (n, d) are clipped to their median length for it. The total is opened where
    there are other sites in the ``cohort``.
    """
    names, private, own = job.task.class_names, job.federation.private, policy.restricted_by(job.policy)
    gaussian = Gaussian(noise, float(np.median(np.linalg.norm(features, axis=1))))
    small, sums = plain(SMALL, names), Cohort(cohort, len(names), features.shape[1])
    alone = {
        NONE: Defence(OPEN, plain(OPEN, names)),
        POLICY: Defence(own, plain(own, names) if private is None else noisy(private.gaussian, own, names)),
        SMALL_CELLS: Defence(SMALL, small),
        NOISE: Defence(SMALL, noisy(gaussian, SMALL, names)),
        SECURE: sums.defence(SMALL, small, opened=False),
    }
    return alone | ({TOTAL: sums.defence(SMALL, small, opened=True)} if cohort else {})


def _any(sums: ClassSums) -> ClassSums | None:
    return sums if bool((sums.counts > 0).any()) else None
