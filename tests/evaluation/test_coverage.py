"""Intervals hold the truth as often as they say, for images of as many patients and for several images of each.

The truth is what scikit-learn finds on very many images. ``python -m tests.evaluation.test_coverage`` prints the table
of docs/clinical.md.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score, roc_auc_score

from fedmr_med.evaluation.base import Estimate
from fedmr_med.evaluation.clinical import softmax
from fedmr_med.evaluation.figures import Figures, figures
from fedmr_med.evaluation.metrics import pooled, scored

CLASSES, RUNS = 3, 500
SHARES = (0.5, 0.3, 0.2)
FIGURES = ("accuracy", "balanced_accuracy", "sensitivity", "specificity", "auroc", "brier")


@dataclass(frozen=True)
class Design:
    """How the test images of two hospitals come about.

    Attributes:
        patients, images: of both together, and of each patient.
        alike: standard deviation of what the logits of a patient's images have in common; that of an image is 1.
        mixed: whether a patient has images of several classes.
    """

    patients: int
    images: int
    alike: float = 1.0
    mixed: bool = False

    def drawn(self, generator: np.random.Generator, patients: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return logits (n, C), labels (n,) and patients (n,)."""
        units = np.repeat(np.arange(patients or self.patients), self.images)
        labels = generator.choice(CLASSES, len(units), p=SHARES)
        if not self.mixed:
            labels = labels[units * self.images]
        common = self.alike * generator.normal(size=(len(units), CLASSES))[units]
        logits = 1.2 * np.eye(CLASSES)[labels] + common + generator.normal(size=(len(units), CLASSES))
        return logits, labels, units


DESIGNS = {
    "300 patients, one image each": Design(300, 1),
    "60 patients of five images": Design(60, 5),
    "60 patients of five images, of several classes": Design(60, 5, mixed=True),
    "60 patients of five images that do not resemble each other": Design(60, 5, alike=0.0),
}


def truth(design: Design) -> dict[str, float]:
    logits, labels, _ = design.drawn(np.random.default_rng(1), 60_000)
    answers, probabilities = logits.argmax(1), softmax(logits)
    return {
        "accuracy": accuracy_score(labels, answers),
        "balanced_accuracy": balanced_accuracy_score(labels, answers),
        "sensitivity": recall_score(labels, answers, average=None)[0],
        "specificity": recall_score(labels != 0, answers != 0),
        "auroc": roc_auc_score(labels == 0, probabilities[:, 0]),
        "brier": float(((probabilities - np.eye(CLASSES)[labels]) ** 2).sum(1).mean()),
    }


def covered(design: Design, runs: int, *, knows_patients: bool = True) -> dict[str, float]:
    """Return how often the interval of each figure holds its true value."""
    true, hits = truth(design), dict.fromkeys(FIGURES, 0)
    for seed in range(runs):
        logits, labels, units = design.drawn(np.random.default_rng([7, seed]))
        sites = {
            name: scored(logits[rows], labels[rows], units[rows] if knows_patients else None)
            for name, rows in {"a": units % 3 > 0, "b": units % 3 == 0}.items()
        }
        total, _ = pooled(sites)
        found = None if total is None else figures(total)
        for name, estimate in estimates(found).items():
            hits[name] += int(estimate.low <= true[name] <= estimate.high)
    return {name: count / runs for name, count in hits.items()}


def estimates(found: Figures) -> Mapping[str, Estimate]:
    """Return the figures of all classes, and of the first one where a figure is of a class."""
    own = {name: found.classes[0].metrics[name] for name in ("sensitivity", "specificity", "auroc")}
    return {name: own[name] if name in own else found.metrics[name] for name in FIGURES}


@pytest.mark.nightly
@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_intervals_hold_the_truth_as_often_as_they_say(design: Design) -> None:
    shares = covered(design, RUNS)
    assert all(abs(share - 0.95) <= 0.03 + 1e-9 for share in shares.values()), shares


def test_patients_widen_the_intervals_and_single_images_do_not() -> None:
    few, many = DESIGNS["60 patients of five images"], DESIGNS["300 patients, one image each"]
    for design, widens in ((few, True), (many, False)):
        logits, labels, units = design.drawn(np.random.default_rng(3))
        known, unknown = (figures(scored(logits, labels, of)) for of in (units, None))
        assert unknown.design_effect is None
        assert (known.design_effect > 1.5) is widens
        for name, wide in estimates(known).items():
            narrow = estimates(unknown)[name]
            assert wide.value == narrow.value
            ratio = (wide.high - wide.low) / (narrow.high - narrow.low)
            assert ratio > 1.15 if widens else ratio == pytest.approx(1, abs=1e-3)


def table() -> list[str]:
    """Return the lines of the table."""
    lines = [f"| test images | patients known | {' | '.join(name.replace('_', ' ') for name in FIGURES)} |"]
    lines.append("|---" * (2 + len(FIGURES)) + "|")
    for name, design in DESIGNS.items():
        for knows in (True, False):
            shares = covered(design, RUNS, knows_patients=knows)
            lines.append(f"| {name} | {'yes' if knows else 'no'} | {' | '.join(f'{shares[f]:.3f}' for f in FIGURES)} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
