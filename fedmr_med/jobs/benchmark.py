"""The paper's settings for each benchmark dataset, as jobs: what `jobs write`, `bench` and the studies start from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.data.benchmark import SHAKESPEARE, dataset_info
from fedmr_med.data.partition import parse_split
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.changes import change
from fedmr_med.jobs.coefficients import coefficients
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import validated
from fedmr_med.seeding import numpy_generator
from fedmr_med.sites import BenchmarkSource, DataSource, SiteConfig

# From this many clients on, the paper draws ten of them each round.
MANY_CLIENTS, DRAWN_CLIENTS = 50, 10


@dataclass(frozen=True)
class Protocol:
    """How the paper trains on a dataset.

    Attributes:
        model: the network's name.
        split: the most class-disjoint one of the paper's; None where the data comes dealt.
        rounds: rounds with few clients.
        transform: the paper names none; CIFAR's accuracies need the usual crop and flip.
        clients: how many clients there are where the split does not say.
        rounds_by_clients: rounds with many clients.
        model_options: what the network's builder takes.
    """

    model: str
    split: str | None
    rounds: int
    transform: str
    clients: int = 10
    rounds_by_clients: Mapping[int, int] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)


# The paper does not say which network it uses on HyperKvasir, ODIR and Shakespeare, nor for how many rounds.
_EYES_AND_GUTS = {"head": "fedmr", "pretrained": "none"}
PROTOCOLS: dict[str, Protocol] = {
    "fmnist": Protocol("resnet18", "P5C2", 100, "plain"),
    "svhn": Protocol("resnet18", "P5C2", 100, "plain"),
    "cifar10": Protocol("resnet18", "P5C2", 100, "crop_flip", rounds_by_clients={50: 200, 100: 400}),
    "cifar100": Protocol("wide_resnet28_10", "P10C10", 200, "crop_flip", rounds_by_clients={50: 400, 100: 400}),
    "hyperkvasir": Protocol("efficientnet_b0", "P10C3", 100, "isic", model_options=_EYES_AND_GUTS),
    "odir": Protocol("efficientnet_b0", "P4C3", 100, "isic", model_options=_EYES_AND_GUTS),
    SHAKESPEARE: Protocol("char_lstm", None, 100, "none", clients=50),
}


def protocol(dataset: str) -> Protocol:
    """Return the entry of :data:`PROTOCOLS`.

    Raises:
        ConfigError: there is no such dataset.
    """
    if dataset not in PROTOCOLS:
        raise ConfigError(f"dataset: {dataset!r} is not one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[dataset]


def clients_of(dataset: str, split: str | None, clients: int | None = None) -> int:
    """Return the number of clients of a split: what it says itself, or ``clients``, or the paper's number.

    Raises:
        ConfigError: the split is not known, or says another number than ``clients``.
    """
    named = parse_split(split).clients if split is not None else None
    if named and clients not in (None, named):
        raise ConfigError(f"split {split!r} is for {named} clients, not for {clients}.")
    return named or clients or protocol(dataset).clients


def benchmark_job(
    dataset: str,
    method: str,
    *,
    split: str | None = None,
    clients: int | None = None,
    model: str | None = None,
    name: str | None = None,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> JobConfig:
    """Return a job on a benchmark dataset with the paper's settings.

    Args:
        dataset: one of :data:`PROTOCOLS`.
        method: name of the method; its options are the paper's coefficients for the dataset and split, where
            known.
        split: how the data is dealt; None takes the paper's most class-disjoint split.
        clients: how many clients, where the split does not say.
        model: another network than the paper's.
        name: name of the job; None makes one.
        seed: seed of the model, the partition and all that follows.
        changes: other settings, nested like ``fedmr.yaml``, or with dotted keys as :func:`parse_settings` returns
            them.

    Raises:
        ConfigError: something is not known or not valid.
    """
    paper = protocol(dataset)
    split = split or paper.split
    clients = clients_of(dataset, split, clients)
    sampled = DRAWN_CLIENTS if clients >= MANY_CLIENTS else None
    info = dataset_info(dataset)
    content = {
        "name": name or "_".join(filter(None, (dataset, method, split))),
        "task": {
            "dataset": dataset,
            "class_names": info.class_names,
            "image_size": info.image_size,
            "channels": info.channels,
            "transform": paper.transform,
            "split": split,
        },
        "model": {"name": model, "options": {}}
        if model and model != paper.model
        else {"name": paper.model, "options": dict(paper.model_options)},
        "method": {"name": method, "options": coefficients(dataset, split, method)},
        "train": {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "batch_size": 128, "epochs": 10},
        "federation": {
            "rounds": paper.rounds_by_clients.get(clients, paper.rounds),
            "sites_per_round": sampled,
            "min_sites": sampled or clients,
        },
        "seed": seed,
    }
    job = validated(JobConfig, content, f"the job for {dataset}")
    methods.build(job.method)
    return change(job, changes or {})


def benchmark_sites(
    clients: int,
    *,
    root: Path | None = None,
    fraction: float = 1.0,
    share: float = 1.0,
    seed: int = 0,
    holds_test: bool = True,
) -> dict[str, SiteConfig]:
    """Return the settings of the clients of a benchmark, ``client-1`` to ``client-K``.

    Args:
        clients: how many.
        root: folder or file of the dataset; None reads ``FEDMR_MED_DATA``.
        fraction: share of the training data that is used.
        share: share of the clients that share their prototypes.
        seed: draws those clients.
        holds_test: whether the clients hold shares of the test set, to score models themselves.

    Raises:
        ConfigError: ``share`` is not between 0 and 1.
    """
    sources = {
        f"client-{client + 1}": BenchmarkSource(
            source="benchmark", client=client, clients=clients, root=root, fraction=fraction, holds_test=holds_test
        )
        for client in range(clients)
    }
    return with_policies(sources, share=share, seed=seed)


def with_policies(sources: Mapping[str, DataSource], *, share: float, seed: int) -> dict[str, SiteConfig]:
    """Return site settings in which a share of the sites, drawn by seed, share all their prototypes.

    Raises:
        ConfigError: ``share`` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must be between 0 and 1, not {share}.")
    drawn = numpy_generator(seed, "share").permutation(len(sources))[: round(share * len(sources))]
    sharing = {list(sources)[number] for number in drawn}
    return {
        name: SiteConfig(
            data=source,
            policy=SitePolicy(share_prototypes=name in sharing, min_class_count=1, share_metrics="per_class"),
        )
        for name, source in sources.items()
    }
