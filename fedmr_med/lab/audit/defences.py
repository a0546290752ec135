"""What leaves of the same images under each defence, made by the parts that make it in a job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from fedmr_med.arrays import Vector
from fedmr_med.lab.audit.attacks import Floats, Ints, Release
from fedmr_med.privacy.mechanisms import Clip, Gaussian
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.secure.messages import Release as Sum
from fedmr_med.secure.messages import Roster
from fedmr_med.secure.participant import Participant
from fedmr_med.secure.summing import SecureSum
from fedmr_med.statistics.fields import BITS, Field, Layout

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
        return _any(policy.suppression(names).sums(sums))

    return release


def noisy(gaussian: Gaussian, policy: SitePolicy, names: tuple[str, ...]) -> Release:
    """Return what leaves of a site alone with noise on it."""
    clip, chosen = Clip(gaussian.norm), policy.chosen_classes(names)

    def release(features: Floats, labels: Ints) -> ClassSums | None:
        clipped = clip.features(torch.from_numpy(features).double())
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

    def masked(self, inner: Release) -> Release:
        """Return the masked vector of the site, all that the server gets of it, read as if it were not masked."""
        return lambda features, labels: self._sums(self._sum(inner(features, labels), None).vectors[_SITE])

    def total(self, inner: Release) -> Release:
        """Return the total, which the server opens, read as if it were the site's own."""
        return lambda features, labels: _any(self._sums(self._opened(inner(features, labels), None)))

    def masked_scores(self, matrix: Ints | None) -> Ints | None:
        """Return the confusion matrix of the site's masked vector, read as if it were not masked."""
        seen: Ints = self._layout.unpack(self._sum(None, matrix).vectors[_SITE])["confusion"]
        return seen

    def total_scores(self, matrix: Ints | None) -> Ints | None:
        """Return the total of the confusion matrices."""
        total: Ints = self._layout.unpack(self._opened(None, matrix))["confusion"]
        return total

    @property
    def _layout(self) -> Layout:
        return Layout({
            "counts": Field((self.classes,)),
            "sums": Field((self.classes, self.size), BITS),
            "confusion": Field((self.classes, self.classes)),
        })  # fmt: skip

    def _sums(self, vector: Vector) -> ClassSums:
        seen = self._layout.unpack(vector)
        return ClassSums(torch.from_numpy(seen["sums"]), torch.from_numpy(seen["counts"]))

    def _sum(self, sums: ClassSums | None, matrix: Ints | None) -> SecureSum:
        with TemporaryDirectory() as folder:
            return self._run(Path(folder), sums, matrix)[0]

    def _opened(self, sums: ClassSums | None, matrix: Ints | None) -> Vector:
        with TemporaryDirectory() as folder:
            secure, sites = self._run(Path(folder), sums, matrix)
            survivors = secure.survivors()
            for site in sites:
                secure.take_confirmation(site.confirm(secure.release, secure.roster, survivors))
            confirmations = secure.confirmations()
            for site in sites:
                secure.take_shares(site.unmask(secure.release, secure.roster, survivors, confirmations))
            return secure.total()

    def _run(
        self, folder: Path, sums: ClassSums | None, matrix: Ints | None
    ) -> tuple[SecureSum, Sequence[Participant]]:
        """Go on until the masked vectors are in; each release has keys and masks of its own."""
        others = self.others or dict.fromkeys(("x", "y"), (None, None))
        held: dict[str, PutIn] = {_SITE: (sums, matrix), **others}
        sites = [Participant(name, folder / name, UNSIGNED) for name in held]
        for site, (own, scores) in zip(sites, held.values(), strict=True):
            values = {} if own is None else {"counts": own.counts.numpy(), "sums": own.sums.numpy()}
            site.hold("audit", self._layout.pack(values if scores is None else {**values, "confusion": scores}))
        release, roster = Sum("audit", "audit", "audit"), Roster.of([site.keys("audit", "audit") for site in sites])
        secure = SecureSum(release, roster, self._layout.size)
        for site in sites:
            secure.take_offer(site.offer(release, roster))
        for site in sites:
            secure.take_masked(site.mask(release, roster, secure.offered()))
        return secure, sites


def _any(sums: ClassSums) -> ClassSums | None:
    return sums if bool((sums.counts > 0).any()) else None
