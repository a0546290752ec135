"""Simulated hospitals: how often sets hold the right class of new images, by what of the scores leaves.

``python -m tests.helpers.set_coverage`` prints the table of docs/results.md.
"""

import argparse
from functools import reduce
from operator import add

import numpy as np

from fedmr_med.evaluation.clinical import ScoreHistograms
from fedmr_med.evaluation.sets import COVERAGES, MARGIN, least_probabilities, sets_of
from tests.helpers.pooled_auroc import HOSPITALS, SITUATIONS, SIZES, drawn

NEW = 100
"""New images of each class at each hospital."""

FURTHER = SITUATIONS | {"extreme": (30.0, 0.0)}


def held(
    seed: int, *, sharpness: float, apart: float, least: int, share: float = MARGIN, sizes: tuple[int, ...] = SIZES
) -> np.ndarray:
    """Return how often sets hold the class of new images, (len(COVERAGES), C).

    Args:
        seed, sharpness, apart, sizes: see :func:`tests.helpers.pooled_auroc.errors`.
        least: fewest images of a group that leaves; 1 lets single scores out.
        share: of the misses asked for that thresholds are made with.
    """
    logits, labels, hospital = drawn(seed, sizes=[size + NEW for size in sizes], sharpness=sharpness, apart=apart)
    new = np.tile(np.concatenate([np.arange(size + NEW) >= size for size in sizes]), HOSPITALS)
    told = [~new & (hospital == h) for h in range(HOSPITALS)]
    pooled = reduce(add, [ScoreHistograms.of(logits[rows], labels[rows]).spread(least) for rows in told])
    result = []
    for coverage in COVERAGES:
        sets = sets_of(logits[new], least_probabilities(pooled.positives, share * (1 - coverage)))
        result.append([sets[labels[new] == label, label].mean() for label in range(len(sizes))])
    return np.array(result)


def main() -> None:
    """Print the mean over the classes and the drawn federations, and the lowest class, in each situation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    lines = [f"| asked | scores that leave | {' | '.join(FURTHER)} |", "|---" * (2 + len(FURTHER)) + "|"]
    kinds = {
        "single": (1, MARGIN),
        "groups of 11": (11, MARGIN),
        "groups of 11, no margin": (11, 1.0),
    }
    drawn_runs = {
        (kind, name): np.array(
            [held(seed, sharpness=scale, apart=apart, least=least, share=share) for seed in range(runs)]
        )
        for kind, (least, share) in kinds.items()
        for name, (scale, apart) in FURTHER.items()
    }
    found = {key: values.mean(0) for key, values in drawn_runs.items()}
    for row, coverage in enumerate(COVERAGES):
        for kind in kinds:
            shares = [found[kind, name][row] for name in FURTHER]
            cells = [f"{by_class.mean():.3f}, {by_class.min():.3f}" for by_class in shares]
            lines.append(f"| {coverage:g} | {kind} | {' | '.join(cells)} |")
    error = max((values.std(0, ddof=1) / np.sqrt(runs)).max() for values in drawn_runs.values())
    lines.append(f"largest standard error of a class: {error:.3f}")
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
