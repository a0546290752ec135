"""Simulated hospitals: their pooled AUROC from histograms that may leave, against scikit-learn's on their scores.

``python -m tests.helpers.pooled_auroc`` prints the table of docs/clinical.md.
"""

import argparse
from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from fedmr_med.evaluation import clinical
from fedmr_med.evaluation.clinical import ScoreHistograms, softmax

HOSPITALS = 5
SIZES = (11, 12, 15, 20, 30, 50, 100, 200)
SITUATIONS = {
    "timid": (0.3, 0.0),
    "usual": (1.0, 0.0),
    "sure": (3.0, 0.0),
    "too sure": (10.0, 0.0),
    "hospitals apart": (1.0, 1.0),
}
"""Scale of the logits, and how far the hospitals' logits are apart, relative to the noise within one."""


def drawn(
    seed: int, *, sizes: Sequence[int], sharpness: float, apart: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits (n, C), labels (n,) and hospitals (n,) of images, sorted by hospital and class; see errors()."""
    generator, classes = np.random.default_rng(seed), len(sizes)
    labels = np.tile(np.repeat(np.arange(classes), sizes), HOSPITALS)
    hospital = np.repeat(np.arange(HOSPITALS), sum(sizes))
    logits = generator.normal(size=(len(labels), classes)) + 1.5 * np.eye(classes)[labels]
    logits = sharpness * (logits + apart * generator.normal(size=(HOSPITALS, classes))[hospital])
    return logits, labels, hospital


def errors(
    seed: int, *, sizes: Sequence[int] = SIZES, least: int = 11, sharpness: float = 1.0, apart: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return by class the pooled AUROC minus the exact one, whether the interval holds it, and AUPRC's error.

    Args:
        seed: draws the images.
        sizes: (C,) test images of each class at each hospital.
        least: fewest images of a group that leaves.
        sharpness: scale of the logits.
        apart: standard deviation of each hospital's own shift of a class's logits; that of an image is 1.
    """
    classes = len(sizes)
    logits, labels, hospital = drawn(seed, sizes=sizes, sharpness=sharpness, apart=apart)
    parts = [ScoreHistograms.of(logits[hospital == h], labels[hospital == h]) for h in range(HOSPITALS)]
    pooled = reduce(add, [part.spread(least) for part in parts])
    ranked = clinical.ranking(pooled.positives, pooled.negatives)
    exact, precision = (
        np.array([score(labels == c, softmax(logits)[:, c]) for c in range(classes)])
        for score in (roc_auc_score, average_precision_score)
    )
    missed = ranked.auroc - exact
    return missed, np.abs(missed) <= clinical.Z95 * ranked.auroc_error, ranked.average_precision - precision


def main() -> None:
    """Print the bias of each size in each situation, and its standard deviation over the drawn federations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--least", type=int, default=11)
    arguments = parser.parse_args()
    sizes = (arguments.least, *(size for size in SIZES if size > 11))
    lines = [
        f"| positives a hospital | {' | '.join(SITUATIONS)} | in the interval | AUPRC, usual | AUPRC, too sure |",
        "|---" * 9 + "|",
    ]
    found = [
        [
            errors(seed, sizes=sizes, least=arguments.least, sharpness=sharpness, apart=apart)
            for seed in range(arguments.runs)
        ]
        for sharpness, apart in SITUATIONS.values()
    ]
    for label, size in enumerate(sizes):
        missed = [np.array([run[0][label] for run in runs]) for runs in found]
        cells = [f"{part.mean():+.4f} ± {part.std(ddof=1):.3f}" for part in missed]
        held = np.mean([run[1][label] for runs in found for run in runs])
        precision = [np.mean([run[2][label] for run in runs]) for runs in found]
        lines.append(f"| {size} | {' | '.join(cells)} | {held:.1%} | {precision[1]:+.3f} | {precision[3]:+.3f} |")
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
