"""What one bad site can do: attacks on the demo federation, against the rules of :mod:`fedmr_med.server.robust`.

Six sites learn on generated pictures, and one of them, or two, send in every round what an attack makes of their reply.
The figure is what the attack costs: the pooled balanced accuracy of the last model, on the test images of all sites.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.data.base import Fold
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.data.loading import Batches
from fedmr_med.errors import FedMRError
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.runner import Federation
from fedmr_med.runner.local_sites import LocalSites
from fedmr_med.seeding import numpy_generator
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire.messages import SiteReply, TrainTask

ATTACKER = "rosendahl"
"""The third largest of the six sites: 142 of 756 training images."""

SECOND, SMALLEST = "vidir-modern", "vienna-dias"
"""The second largest, for attacks by two, and the smallest: 159 and 54 images."""

MELANOMA, NEVUS = 0, 1
CLEAN, FLIPPED = "no attack", "labels flipped"
SETTINGS: dict[str, Any] = {
    "task": {"image_size": 24},
    "model": {"name": "small_cnn"},
    "federation": {"rounds": 5, "min_sites": 4},
}
RULES: dict[str, dict[str, Any]] = {
    "no rule": {"max_deviation": None},
    "default": {},
    "clip": {"robust": "clip"},
    "trimmed mean": {"robust": "trimmed_mean"},
    "median": {"robust": "median"},
}


@dataclass(frozen=True)
class Cell:
    """One run: the accuracy of its last model, and how often an attacker was left out of a round."""

    attack: str
    rule: str
    seed: int
    accuracy: float
    stopped: int


Reply = Callable[[SiteReply, TrainTask], SiteReply]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Attack:
    """What bad sites do.

    Attributes:
        reply: makes what they send of what they should send.
        labels: what they train on, of the true labels (n,) and the number of classes; None trains on the true ones.
        shows: whether their prototypes are of those labels too.
        by: who attacks.
    """

    reply: Reply = lambda reply, task: reply
    labels: Callable[[Labels, int], Labels] | None = None
    shows: bool = False
    by: tuple[str, ...] = (ATTACKER,)


def _model(change: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]) -> Reply:
    """Return an attack on each array of the model, given the trained and the received one."""

    def attack(reply: SiteReply, task: TrainTask) -> SiteReply:
        changed = {n: change(a, task.model[n]).astype(a.dtype) for n, a in reply.model.items() if a.dtype.kind == "f"}
        return replace(reply, model=reply.model | changed)

    return attack


def _prototypes(change: Callable[[ClassSums], ClassSums]) -> Attack:
    def attack(reply: SiteReply, task: TrainTask) -> SiteReply:
        return reply if reply.prototypes is None else reply.with_statistic(PROTOTYPES, change(reply.prototypes))

    return Attack(attack)


def _rolled(shared: ClassSums) -> ClassSums:
    """Give each shared class the mean feature of the next one."""
    classes = shared.counts.nonzero().flatten()
    means = shared.sums[classes] / shared.counts[classes, None]
    sums = torch.zeros_like(shared.sums)
    sums[classes] = means.roll(1, dims=0) * shared.counts[classes, None]
    return ClassSums(sums, shared.counts)


def _flipped(labels: Labels, classes: int) -> Labels:
    return classes - 1 - labels


_REVERSED = _model(lambda trained, received: received - 1.3 * (trained - received))
_BOTH = (ATTACKER, SECOND)
ATTACKS = {
    CLEAN: Attack(),
    "update x -5": Attack(_model(lambda trained, received: received - 5 * (trained - received))),
    "model x 100": Attack(_model(lambda trained, received: 100 * trained)),
    "random model": Attack(
        _model(lambda trained, _: numpy_generator(0, "noise", str(trained.shape)).standard_normal(trained.shape))
    ),
    "model of zeros": Attack(_model(lambda trained, received: np.zeros_like(trained))),
    FLIPPED: Attack(labels=_flipped, shows=True),
    "prototypes x 100": _prototypes(lambda sums: ClassSums(100 * sums.sums, sums.counts)),
    "prototypes exchanged": _prototypes(_rolled),
    "update x -1.3": Attack(_REVERSED),
    "update x -1.3 by two sites": Attack(_REVERSED, by=_BOTH),
    "melanomas as nevi with 10^6 images claimed": Attack(
        lambda reply, task: replace(reply, samples=10**6),
        lambda labels, classes: np.where(labels == MELANOMA, NEVUS, labels),
        by=(SMALLEST,),
    ),
    "labels flipped behind right prototypes": Attack(labels=_flipped),
    "labels flipped behind right prototypes by two sites": Attack(labels=_flipped, by=_BOTH),
    "labels flipped without prototypes": Attack(lambda reply, task: reply.with_statistic(PROTOTYPES, None), _flipped),
}


class PoisonedSites(LocalSites):
    """Answers for sites of which one or two attack the others in every round."""

    def __init__(self, attack: Attack, *arguments: Any):
        super().__init__(*arguments)
        self.attack = attack

    def reply(self, hospital: Hospital, task: TrainTask) -> SiteReply:
        """Let the attackers do their worst, and the others train."""
        if hospital.name not in self.attack.by:
            return hospital.train(task)
        if self.attack.labels is not None:
            settings, train = hospital.job.task, hospital.data.train
            items = np.stack([train[index] for index in range(len(train))])
            fold = Fold(items, self.attack.labels(train.labels, settings.num_classes), train.groups)
            batches = Batches.of(fold, settings, batch_size=hospital.job.train.batch_size)
            hospital.batches.train = batches
            if self.attack.shows:
                hospital.batches.plain = batches
        return self.attack.reply(hospital.train(task), task)


def run(attack: str, rule: Mapping[str, Any], *, seed: int) -> tuple[float, int]:
    """Run the federation under an attack.

    Returns:
        The pooled balanced accuracy of the last model, 0 if the attack brought the federation to a halt, and how often
        an attacker was left out of a round.
    """
    job = isic_job("fedmr").for_demo().override(SETTINGS).override({"federation": dict(rule), "seed": seed})
    policy = SitePolicy(share_prototypes=True, min_class_count=1, min_cell_count=1, share_metrics="per_class")
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=policy)
        for center, name in enumerate(HOSPITALS)
    }
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(job, sites, Path(folder), make_sites=partial(PoisonedSites, ATTACKS[attack]))
        try:
            history = federation.run().history
        except FedMRError:
            if attack == CLEAN:
                raise
            return 0.0, 0
    last = history.evaluations[-1].pooled
    stopped = sum(site in r.refused for r in history.rounds for site in ATTACKS[attack].by)
    return (last.balanced_accuracy or 0.0) if last else 0.0, stopped


def run_all(attacks: Sequence[str], rules: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """Run every attack against every rule with every seed."""
    for attack in attacks:
        for rule in rules:
            for seed in seeds:
                accuracy, stopped = run(attack, RULES[rule], seed=seed)
                yield Cell(attack, rule, seed, accuracy, stopped)


def table(cells: Sequence[Cell]) -> list[list[str]]:
    """Return the mean accuracy in points by attack and rule, with the cost against the same rule without an attack.

    The first row names the rules.
    """
    attacks, rules = (list(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in ("attack", "rule"))
    means = {
        (attack, rule): 100 * fmean(c.accuracy for c in cells if (c.attack, c.rule) == (attack, rule))
        for attack in attacks
        for rule in rules
    }

    def text(attack: str, rule: str) -> str:
        mean, clean = means[attack, rule], means.get((CLEAN, rule))
        return f"{mean:.1f}" + ("" if clean is None or attack == CLEAN else f" ({-(clean - mean):+.1f})")

    return [["", *rules], *([attack, *(text(attack, rule) for rule in rules)] for attack in attacks)]
