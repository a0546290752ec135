"""A federation with a statistic of a package outside the repository, for a process that has the package installed."""

import json
import sys
from pathlib import Path

from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.privacy.accountant import PrivacyBudget
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.runner import Federation
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.small import CLOSED, OPEN, lenient, small_job

STATISTIC = '''
"""Lengths of features by class, made at each of the three exchanges."""

import numpy as np

from fedmr_med.statistics.fields import BITS, Field
from fedmr_med.statistics.shared import SharedStatistic


class Lengths(SharedStatistic):
    name = "lengths"
    exchange = "train"

    def fields(self, sizes):
        rows = (sizes.num_classes,)
        return {
            "counts": Field(rows, by_class=True),
            "lengths": Field(rows, BITS, by_class=True),
            "claims": Field(rows, by_class=True),
            "images": Field(()),
        }

    def values(self, samples, sizes):
        lengths = np.linalg.norm(samples.features, axis=1)
        return {
            "counts": np.bincount(samples.labels, minlength=sizes.num_classes),
            "lengths": np.bincount(samples.labels, lengths, minlength=sizes.num_classes),
            "claims": np.ones(sizes.num_classes),
            "images": np.array(len(samples.labels)),
        }

    def result(self, total):
        return {name: array.tolist() for name, array in total.items()}


class TestLengths(Lengths):
    name = "test-lengths"
    exchange = "validate"


class HeadLengths(Lengths):
    name = "head-lengths"
    exchange = "head"
'''
ENTRIES = {"lengths": "our_lengths:Lengths", "test-lengths": "our_lengths:TestLengths"}
ENTRIES |= {"head-lengths": "our_lengths:HeadLengths"}
EXCHANGES = {"lengths": "train", "test-lengths": "validate", "head-lengths": "head"}
POLICIES: dict[str, SitePolicy] = {
    "bcn": OPEN,
    "msk": CLOSED,
    "rosendahl": lenient(share_prototypes=True, min_class_count=30, share_metrics="scalar"),
    "vidir-modern": lenient(share_prototypes=("NV", "MEL"), share_metrics="per_class"),
    "vienna-dias": lenient(share_prototypes=True, share_metrics="per_class", privacy=PrivacyBudget(epsilon=4)),
}


def statistics(folder: Path, secure: str) -> dict[str, object]:
    """Return what the statistics of a run say, by name."""
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=policy)
        for name, policy in POLICIES.items()
    }
    federation = {"rounds": 1, "min_sites": 3, "secure": secure, "statistics": list(EXCHANGES)}
    job = small_job(federation=federation, head={"exchange": "last"})
    history = Federation(job, sites, folder).run().history
    assert history.head is not None
    return history.rounds[0].statistics | history.evaluations[-1].statistics | history.head.statistics


if __name__ == "__main__":
    said = {secure: statistics(Path(sys.argv[1]) / secure, secure) for secure in ("none", "statistics")}
    sys.stdout.write(json.dumps(said))
