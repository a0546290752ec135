"""What the demo runs: four hospitals with two of six classes each, trained in four ways."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.results import RunSetup
from fedmr_med.jobs.catalog import own_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.server.chain import setup_of
from fedmr_med.sites import DemoSource, SiteConfig

CLASSES = ("MEL", "BCC", "AK", "BKL", "DF", "VASC")
"""What is to be told apart: six of the demo's eight classes."""

HOSPITALS: Mapping[str, tuple[str, ...]] = {
    "north": ("MEL", "BCC"),
    "east": ("AK", "BKL"),
    "south": ("DF", "VASC"),
    "west": ("VASC", "MEL"),
}
"""The classes that each hospital holds."""

OPTED_OUT = "east"
"""Who shares no prototypes where one hospital opts out."""

ALONE, FEDAVG, FEDMR, OPT_OUT = "each hospital alone", "FedAvg", "FedMR", "FedMR, one opts out"
LABELS = (ALONE, FEDAVG, FEDMR, OPT_OUT)
"""The rows of all tables, in their order."""

ROUNDS = 20
LAST = 5
"""Scores are means of so many last rounds: under partially class-disjoint data they swing from round to round."""

IMAGE_SIZE = 28
IMAGES = 40  # of each class that a hospital holds, to train with

_TRAINING = {"lr": 0.01, "batch_size": 16, "epochs": 4, "augment": False}


@dataclass(frozen=True)
class Run:
    """One federation of the demo, and its row in the tables; of :data:`ALONE` there is one for each hospital."""

    label: str
    job: JobConfig
    sites: Mapping[str, SiteConfig]

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.job.name}-seed{self.job.seed}"

    @property
    def title(self) -> str:
        """What the screen calls it while it runs."""
        return f"{next(iter(self.sites))} alone" if self.label == ALONE else self.label

    @property
    def steps(self) -> int:
        """Its rounds, each as often as it has sites: what they cost."""
        return self.job.federation.rounds * len(self.sites)

    def setup(self) -> RunSetup:
        """Return what ``results.json`` says of it."""
        sharing = [site.policy.share_prototypes is True for site in self.sites.values()]
        return setup_of(
            self.job,
            self.label,
            clients=len(sharing),
            clients_per_round=len(sharing),
            share=sum(sharing) / len(sharing),
            train=self.job.train.model_dump(mode="json"),
            demo=True,
        )


def hospitals(opted_out: str = "") -> dict[str, SiteConfig]:
    """Return the settings of the hospitals; one may have opted out of sharing prototypes.

    They share no scores: the models are scored on the test pictures of all hospitals, by the demo itself.
    """
    return {
        name: SiteConfig(
            data=DemoSource(source="demo", center=center, classes=classes, images=IMAGES),
            policy=SitePolicy(share_prototypes=name != opted_out, training=None),
        )
        for center, (name, classes) in enumerate(HOSPITALS.items())
    }


def runs(seeds: Sequence[int], rounds: int) -> list[Run]:
    """Return all runs, the longest first, so that two processes end at about the same time."""
    everyone = hospitals()
    together = [
        Run(label, _job(name, method, len(everyone), seed, rounds), hospitals(opted_out))
        for seed in seeds
        for label, name, method, opted_out in (
            (FEDAVG, "fedavg", "fedavg", ""),
            (FEDMR, "fedmr", "fedmr", ""),
            (OPT_OUT, "fedmr-opt-out", "fedmr", OPTED_OUT),
        )
    ]
    alone = [
        Run(ALONE, _job(f"{name}-alone", "fedavg", 1, seed, rounds), {name: site})
        for seed in seeds
        for name, site in everyone.items()
    ]
    return together + alone


def _job(name: str, method: str, sites: int, seed: int, rounds: int) -> JobConfig:
    task = {"dataset": "demo", "class_names": CLASSES, "image_size": IMAGE_SIZE}
    # A head for FedAvg too: it costs one exchange, and says how much of the difference lies in the last layer.
    head = "last" if sites > 1 else "none"
    federation = {"min_sites": sites, "max_deviation": None}
    changes = {"train": _TRAINING, "federation": federation, "head": {"exchange": head}}
    return own_job(name, task, method, "small_cnn", rounds=rounds, seed=seed, changes=changes)
