"""The attacks on membership as SACRO-ML reports them, for those who check what leaves a research environment.

The file has the form of SACRO-ML's ``report.json``: one entry per attack and defence, with its metrics by the names
that SACRO-ML's readers look for. Where a metric needs a yes or no for each image, as many images are called members
as there are.
"""

import json
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedmr_med.files import write_text
from fedmr_med.lab.audit.attacks import Floats
from fedmr_med.lab.audit.attacks.images import Guess
from fedmr_med.privacy.findings import Audit
from fedmr_med.version import __version__

Bools = npt.NDArray[np.bool_]

_TAILS = {"01": 0.1, "02": 0.2, "001": 0.01}
_FALSE_ALARMS = (0.5, 0.2, 0.1, 0.01, 0.001, 0.00001)  # percent
_LEAST_LOG = 115.13  # of a p-value that is zero in float64


def write_sacro(path: Path, audit: Audit, guesses: Iterable[Guess]) -> None:
    """Write the attacks on membership in the form of SACRO-ML's reports."""
    # SACRO-ML's recommendation counts what was significant in earlier entries again: the least significant go first.
    measured = sorted(((metrics(guess), guess) for guess in guesses), key=lambda pair: -pair[0]["P_HIGHER_AUC"])
    entries = [_entry(path, audit, *pair) for pair in measured]
    content = {f"{entry['metadata']['attack_name']}_{entry['log_id']}": entry for entry in entries}
    write_text(path, json.dumps(content, indent=1) + "\n")


def metrics(guess: Guess) -> dict[str, Any]:
    """Return the metrics of an attack by SACRO-ML's names; rates are shares, ``PDIF`` is minus the log of a p-value."""
    probability, members = probabilities(guess)
    n, m = len(guess.members), len(guess.others)
    called = probability > 0.5
    tp, fp = int((called & members).sum()), int((called & ~members).sum())
    fn, tn = n - tp, m - fp
    precision, recall = _share(tp, tp + fp), tp / n
    false_alarms, hits, thresholds = roc(probability, members)
    fields = {
        "TPR": recall,
        "FPR": fp / m,
        "FAR": _share(fp, tp + fp),
        "TNR": tn / m,
        "PPV": precision,
        "NPV": _share(tn, tn + fn),
        "FNR": fn / n,
        "ACC": (tp + tn) / (n + m),
        "F1score": _share(2 * precision * recall, precision + recall),
        "Advantage": abs(recall - fp / m),
        "AUC": guess.area,
        "P_HIGHER_AUC": float(stats.norm.sf((guess.area - 0.5) / _deviation(n, m))),
    }
    for suffix, share in _TAILS.items():
        fields |= {f"{name}{suffix}": value for name, value in _extremes(probability, members, share).items()}
    fields["pred_prob_var"] = float(probability.var())
    for percent in _FALSE_ALARMS:
        fields[f"TPR@{percent:g}%"] = float(hits[false_alarms <= percent / 100].max())
    curve = {"fpr": false_alarms.tolist(), "tpr": hits.tolist(), "roc_thresh": thresholds.tolist()}
    return fields | curve | {"n_pos_test_examples": n, "n_neg_test_examples": m}


def probabilities(guess: Guess) -> tuple[Floats, Bools]:
    """Return scores from 0 to 1, (n + m,), in the order of the attack's own, and which of them are of members.

    They are ranks, stretched so that as many lie above one half as there are members.
    """
    scores = np.concatenate([guess.members, guess.others])
    members = np.arange(len(scores)) < len(guess.members)
    ranks = (stats.rankdata(scores) - 0.5) / len(scores)
    middle = len(guess.others) / len(scores)
    below = 0.5 * ranks / middle
    return np.where(ranks < middle, below, 0.5 + 0.5 * (ranks - middle) / (1 - middle)), members


def roc(probability: Floats, members: Bools) -> tuple[Floats, Floats, Floats]:
    """Return shares of others and of members at or above each threshold, and the thresholds, from the highest on."""
    order = np.argsort(-probability, kind="stable")
    last = np.flatnonzero(np.append(np.diff(probability[order]) != 0, True))  # of equal scores, which go together
    hits, alarms = np.cumsum(members[order])[last], np.cumsum(~members[order])[last]
    start = np.zeros(1)
    curve = (np.concatenate([start, alarms / alarms[-1]]), np.concatenate([start, hits / hits[-1]]))
    return *curve, np.concatenate([np.ones(1), probability[order][last]])


def _extremes(probability: Floats, members: Bools, share: float) -> dict[str, float]:
    """Return how many of the images with the highest and lowest scores are members, and how likely that is."""
    count = int(np.ceil(share * len(members)))
    order = np.argsort(probability)
    lowest, highest = float(members[order[:count]].mean()), float(members[order[-count:]].mean())
    prior = float(members.mean())
    chance = stats.norm.sf((highest - lowest) / np.sqrt(2 * prior * (1 - prior) / count))
    unlikely = float(-np.log(chance)) if chance > 1e-50 else _LEAST_LOG
    return {"FMAX": highest, "FMIN": lowest, "FDIF": highest - lowest, "PDIF": unlikely}


def _entry(path: Path, audit: Audit, measured: dict[str, Any], guess: Guess) -> dict[str, Any]:
    about = {"site": audit.site, "defence": guess.defence, "noise": audit.noise, "epsilon": audit.epsilon}
    spread = 3 * _deviation(len(guess.members), len(guess.others))
    return {
        "log_id": str(uuid.uuid4()),
        "log_time": time.strftime("%d/%m/%Y %H:%M:%S"),
        "metadata": {
            "sacroml_version": f"none: written by fedmr_med {__version__}",
            "attack_name": f"{guess.attack}, defence {guess.defence}",
            "attack_params": {"output_dir": str(path.parent), "n_reps": 1, **about},
            "global_metrics": {
                "null_auc_3sd_range": f"{0.5 - spread:.4f} -> {0.5 + spread:.4f}",
                "n_sig_auc_p_vals": int(measured["P_HIGHER_AUC"] <= 0.05),
            },
            "target_model": audit.trained,
        },
        "attack_experiment_logger": {"attack_instance_logger": {"instance_0": measured}},
    }


def _deviation(n: int, m: int) -> float:
    """Return the standard deviation of the AUC of scores that tell nothing about n members and m others."""
    return float(np.sqrt((n + m + 1) / (12 * n * m)))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
