"""The clients of a benchmark dataset: how many there are, what each holds, and who shares."""

from collections.abc import Collection, Mapping
from pathlib import Path

from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.partition import parse_split
from fedmr_med.errors import ConfigError
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.seeding import numpy_generator
from fedmr_med.sites import BenchmarkSource, DataSource, SiteConfig


def clients_of(dataset: str, split: str | None, clients: int | None = None) -> int:
    """Return the number of clients of a split: what it says itself, or ``clients``, or the paper's number.

    Raises:
        ConfigError: dataset or split is not known, or the split says another number than ``clients``.
    """
    named = parse_split(split).clients if split is not None else None
    if named and clients not in (None, named):
        raise ConfigError(f"split {split!r} is for {named} clients, not for {clients}.", code="split.clients")
    return named or clients or DATASETS.get(dataset).protocol.clients


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


def with_policies(
    sources: Mapping[str, DataSource], *, share: float, seed: int, opted_out: Collection[str] = ()
) -> dict[str, SiteConfig]:
    """Return site settings in which a share of the sites, drawn by seed, share all their prototypes.

    Those who ``opted_out`` share none in any case.

    Raises:
        ConfigError: ``share`` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must be between 0 and 1, not {share}.", code="config.value", key="share")
    drawn = numpy_generator(seed, "share").permutation(len(sources))[: round(share * len(sources))]
    sharing = {list(sources)[number] for number in drawn} - {*opted_out}
    return {
        name: SiteConfig(
            data=source,
            policy=SitePolicy(
                share_prototypes=name in sharing,
                min_class_count=1,
                min_cell_count=1,  # public images: scores are complete
                share_metrics="per_class",
                round_samples=1,
                training=None,
            ),
        )
        for name, source in sources.items()
    }
