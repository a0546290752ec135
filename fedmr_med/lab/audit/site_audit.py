"""The audit of one site: the same images under each defence, and every attack on what leaves then."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from fedmr_med.config import JobConfig
from fedmr_med.data.demo import effective_job
from fedmr_med.errors import ConfigError
from fedmr_med.lab.audit.attacks import Ints, counts, images, prototypes
from fedmr_med.lab.audit.attacks.images import Guess, nearness
from fedmr_med.lab.audit.attacks.inversion import STEPS
from fedmr_med.lab.audit.defences import Defence, PutIn, defences, plain
from fedmr_med.lab.audit.pictures import Wanted, by_size, likenesses, of_class, parts, pictures
from fedmr_med.lab.audit.visit import Visit, visit
from fedmr_med.privacy.accountant import epsilon
from fedmr_med.privacy.findings import Audit, Finding
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure import FEWEST
from fedmr_med.server.state import initial_state, with_weights
from fedmr_med.sites import SiteConfig
from fedmr_med.statistics.scores import released_scores

INVERSION = "inversion of a prototype"
_BY_SIZE = "prototypes by size"
_LEFT_OUT = 8  # images that differencing tries
_INVERTED = 3  # prototypes of a defence that are made into pictures, those of the fewest images


@dataclass(frozen=True)
class View:
    """What the server sees of a site under a defence, beside what is true. It has both models under every defence."""

    name: str
    defence: Defence
    visit: Visit

    @cached_property
    def released(self) -> ClassSums | None:
        """The class sums."""
        return self.defence.release(self.visit.after.train.features, self.visit.after.train.labels)

    @property
    def samples(self) -> int:
        """The number of training images that leaves."""
        return self.defence.policy.released_samples(self.visit.counts, self.visit.names)

    @property
    def confusion(self) -> Ints | None:
        """The confusion matrix (C, C), which is of the model that was sent."""
        test = self.visit.before.test
        scores = released_scores(test.logits, test.labels, self.defence.policy, self.visit.names)
        return self.defence.scores(None if scores is None else scores.confusion)

    @cached_property
    def rounds(self) -> counts.TwoRounds:
        """Two rounds that differ by an image."""
        train = self.visit.after.train
        left_out = counts.one_of_each_class(train.labels, _LEFT_OUT)
        return counts.two_rounds(self.defence.release, train.features, train.labels, left_out)

    @cached_property
    def by_prototype(self) -> Guess:
        """Membership by the distance to the prototype."""
        after = self.visit.after
        near = (nearness(self.released, fold.features, fold.labels) for fold in (after.train, after.test))
        return Guess("membership by prototype", self.name, *near)

    @property
    def pictures(self) -> list[Wanted]:
        """The prototypes that are made into pictures."""
        means, held = prototypes(self.released), self.visit.counts
        fewest = sorted(means, key=lambda label: int(held[label]))[:_INVERTED]
        return [of_class(self.visit, label, means[label]) for label in fewest]


def audit(
    name: str,
    job: JobConfig,
    site: SiteConfig,
    *,
    noise: float = 2.0,
    others: Mapping[str, SiteConfig] | None = None,
    initial_model: Path | None = None,
    steps: int = STEPS,
) -> tuple[Audit, tuple[Guess, ...]]:
    """Attack what a site would release in a job, under no defence, its own policy, and each defence by itself.

    One round is trained; nothing leaves this process. The attacker has what the server has: the model before and after
    the round, and what the defence lets out.

    Args:
        noise: multiplier of the defence ``noise``.
        others: other sites, two or more, with which the site's sums are added up: what is opened then is attacked too.
        initial_model: a file with the weights that the round starts from; None takes the job's own.
        steps: of the optimiser that makes a picture from a prototype.

    Returns:
        The findings, and the scores behind those about membership.

    Raises:
        ConfigError: there is one other site, where a sum needs three; or the training of a site diverged.
        DataError: a site has no usable data, or no test images.
    """
    others = others or {}
    if 0 < len(others) < FEWEST - 1:
        why = f"A secure total needs {FEWEST} sites: name at least {FEWEST - 1} others, or none."
        raise ConfigError(why, code="secure.too-few-sites", key="--with")
    asked = effective_job(job, {name: site, **others})
    job = asked.override({"federation": {"secure": "none", "private": None}})
    if initial_model is not None:
        job = with_weights(job, initial_model)
    state = initial_state(job, initial_model)
    seen = visit(name, job, site, state)
    cohort = {
        other: _put_in(visit(other, job, config, state), config.policy.restricted_by(job.policy))
        for other, config in others.items()
    }
    sent = defences(asked, site.policy, seen.after.train.features, noise=noise, cohort=cohort)
    views = [View(name, defence, seen) for name, defence in sent.items()]
    drawn = parts(seen)
    wanted = {view.name: view.pictures for view in views} | {_BY_SIZE: pictures(seen, drawn)}
    alike = likenesses(seen, wanted, steps=steps)
    of_update = _of_update(seen)
    findings = []
    for view in views:
        success = {attack: succeed(view) for attack, succeed in ATTACKS.items()}
        if view.name in alike:
            success[INVERSION] = float(np.mean(alike[view.name] or [0.0]))
        success |= {guess.attack: guess.advantage for guess in (view.by_prototype, *of_update)}
        findings += [Finding(defence=view.name, attack=attack, success=value) for attack, value in success.items()]
    guesses, cost = (*of_update, *(view.by_prototype for view in views)), None
    with suppress(ConfigError):  # dp-accounting is an extra, and the attacks do without
        cost = epsilon([noise])
    report = Audit(
        site=name,
        images=(len(seen.after.train.labels), len(seen.after.test.labels)),
        classes=dict(zip(seen.names, seen.counts.tolist(), strict=True)),
        demo=seen.hospital.data.is_demo,
        trained=_trained(job, initial_model),
        noise=noise,
        epsilon=cost,
        cohort=tuple(others),
        findings=tuple(findings),
        sizes=by_size(seen, drawn, alike.get(_BY_SIZE)),
    )
    return report, tuple(guess for guess in guesses if len(guess.members) and len(guess.others))


def _large_step(view: View) -> float:
    """Attack the update of one step on all images, which training floors refuse."""
    if view.defence.policy.training is not None:
        return 0.0
    held, logits = view.visit.counts, torch.from_numpy(view.visit.before.train.logits)
    gradient = F.softmax(logits.double(), 1).mean(0).numpy() - held / held.sum()
    return counts.histogram_from_bias(gradient, view.visit.bias, held)


ATTACKS: Mapping[str, Callable[[View], float]] = {
    "class counts": lambda view: counts.counts_read(view.released, view.visit.counts),
    "withheld images by subtraction": lambda view: counts.withheld_by_subtraction(
        view.released, view.samples, view.visit.counts
    ),
    "withheld counts by two policies": lambda view: counts.two_policies(
        view.released, view.defence.policy, view.visit.names, view.visit.counts
    ),
    "test counts from the confusion matrix": lambda view: counts.rows_read(view.confusion, view.visit.test_counts),
    "class counts from one large step": _large_step,
    "class of an image by two rounds": lambda view: view.rounds.label,
    "feature of an image by two rounds": lambda view: view.rounds.feature,
    "prototype is one image": lambda view: images.is_one_image(view.released, view.visit.after.train.features),
    "nearest image match": lambda view: images.nearest_match(
        view.released,
        (view.visit.after.train.features, view.visit.after.train.labels),
        (view.visit.after.test.features, view.visit.after.test.labels),
    ),
}
"""The attacks on what a defence lets out, but for inversion, which is done for all defences at once, and membership."""


def _put_in(other: Visit, policy: SitePolicy) -> PutIn:
    """Return what another site puts into a secure sum under its own policy."""
    train, test = other.after.train, other.before.test
    scores = released_scores(test.logits, test.labels, policy, other.names)
    return plain(policy, other.names)(train.features, train.labels), None if scores is None else scores.confusion


def _of_update(seen: Visit) -> tuple[Guess, Guess]:
    """Return the attacks on the model itself, which leaves under every defence."""
    before, after = seen.before, seen.after
    falls = (before.train.losses - after.train.losses, before.test.losses - after.test.losses)
    return (
        Guess("membership by loss of the update", "any", -after.train.losses, -after.test.losses),
        Guess("membership by change of the loss", "any", *falls),
    )


def _trained(job: JobConfig, initial_model: Path | None) -> str:
    budget = f"{job.train.updates} updates" if job.train.updates is not None else f"{job.train.epochs} epochs"
    start = "the job's initial model" if initial_model is None else "a model that was given"
    return f"{job.model.name}, {job.task.image_size} px, {job.method.name}: one round of {budget} from {start}"
