"""Sets of classes on Fed-ISIC2019, centres 1 to 5: how often they hold the right class, and how often they are one.

``python docs/results/sets.py PREPARED 64`` deals lesions into five parts, as ``heads.py``: three train the toolkit's
closed-form head on frozen features, one makes the thresholds from what leaves each centre, one is scored. A figure is
the mean over the five turns ± their standard deviation.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import add

import numpy as np
from heads import CLASSES, HELD_OUT, PARTS, bound, centers, features, labels, names, plain, rows

from fedmr_med.data.flamby_isic import CLASS_NAMES, dealt_by_lesion
from fedmr_med.evaluation.clinical import FloatArray
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.evaluation.sets import COVERAGES, MARGIN, least_probabilities, sets_of
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.head import SHRINKAGES, solve
from fedmr_med.statistics.scores import released_scores

SHARES = {"share_prototypes": True, "share_metrics": "per_class"}
POLICIES = {
    "single scores": SitePolicy(**SHARES, min_class_count=1, min_cell_count=1),
    "groups of 11": SitePolicy(**SHARES, min_cell_count=1),
    "default minimums": SitePolicy(**SHARES),
}
center = np.repeat(np.arange(1, len(centers)), [len(part) for part in centers[1:]])
truth = labels.numpy()


def turns() -> Iterator[tuple[FloatArray, np.ndarray, np.ndarray]]:
    """Yield the logits (n, C) of a head on all images, and the masks of those that make thresholds and are scored."""
    parts = [np.array([row.fold == "test" for row in dealt_by_lesion(rows, part, PARTS)]) for part in range(PARTS)]
    for part in range(PARTS):
        scored, told = parts[part], parts[(part + 1) % PARTS]
        trained = np.flatnonzero(~scored & ~told)
        lesions = np.unique(names[trained])
        aside = np.random.default_rng(part).permutation(lesions)[: round(HELD_OUT * len(lesions))]
        out = np.isin(names[trained], aside)
        head = solve(plain(trained), bound(trained[~out], trained[out], SHRINKAGES))
        yield (features @ head.weight.T + head.bias).numpy(), told, scored


def positives(logits: FloatArray, told: np.ndarray, policy: SitePolicy) -> tuple[int, np.ndarray]:
    """Return how many centres let histograms out, and the sum (C, BINS) of the classes' own."""
    sites = [told & (center == number) for number in np.unique(center)]
    answers = [released_scores(logits[rows], truth[rows], policy, CLASS_NAMES) for rows in sites]
    left = [answer.histograms for answer in answers if answer is not None and answer.histograms is not None]
    return len(left), reduce(add, left).positives if left else np.zeros((CLASSES, 1), dtype=np.int64)


def figures(sets: np.ndarray, of: np.ndarray) -> Mapping[str, float]:
    """Return what is told of sets (n, C) of images with labels (n,)."""
    by_class = {name: float(sets[of == label, label].mean()) for label, name in enumerate(CLASS_NAMES) if label in of}
    single = sets.sum(1) == 1
    share = {"classes in a set": float(sets.sum(1).mean()), "one class": float(single.mean())}
    return by_class | share | ({"of these right": float(sets[single, of[single]].mean())} if single.any() else {})


if __name__ == "__main__":
    found: dict[str, list[Mapping[str, float]]] = {}
    for logits, told, scored in turns():
        for name, policy in POLICIES.items():
            centres, counts = positives(logits, told, policy)
            sys.stderr.write(f"{name}: {centres} centres, images {' '.join(map(str, counts.sum(1)))}\n")
            for share in (MARGIN, 1.0) if centres else ():
                for coverage in COVERAGES:
                    sets = sets_of(logits[scored], least_probabilities(counts, share * (1 - coverage)))
                    row = f"{coverage:g} | {name}{'' if share < 1 else ', no margin'}"
                    found.setdefault(row, []).append(figures(sets, truth[scored]))
    keys = dict.fromkeys(key for turned in found.values() for one in turned for key in one)
    sys.stdout.write(f"| asked | scores that leave | {' | '.join(keys)} |\n")
    for row, turned in found.items():
        told_of = {key: [one[key] for one in turned if key in one] for key in keys}
        cells = (Spread.of(values).text(2) if values else "-" for values in told_of.values())
        sys.stdout.write(f"| {row} | {' | '.join(cells)} |\n")
