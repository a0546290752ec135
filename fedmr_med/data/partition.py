"""Dealing one dataset to many clients: the paper's PrhoCsigma, Dirichlet and IID.

Every function returns one sorted int64 array of row numbers per client; no row is in two of them.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import ConfigError
from fedmr_med.seeding import numpy_generator

Labels = npt.NDArray[np.integer]
Rows = npt.NDArray[np.int64]

_DIRICHLET_DRAWS = 1000
_FEWEST = 10


@dataclass(frozen=True)
class Split:
    """A parsed ``task.split``; of ``iid`` nothing is set.

    Attributes:
        clients: number of clients, where the text names it (``P5C2``: 5).
        classes_per_client: sigma of ``P5C2``: 2.
        subset: whether classes that find no slot are left out (``P10C2-subset``).
        beta: concentration of ``dir0.5``: 0.5.
        fewest: samples that every client of ``dir0.5-min20`` has at least: 20.
    """

    clients: int | None = None
    classes_per_client: int | None = None
    beta: float | None = None
    subset: bool = False
    fewest: int | None = None


def parse_split(text: str) -> Split:
    """Read ``P5C2`` (5 clients with 2 classes each), ``dir0.5`` (Dirichlet, beta 0.5) or ``iid``.

    ``P10C2-subset`` deals only as many classes as there are slots, and leaves the last ones out. ``dir0.5-min20`` is
    drawn again while a client has fewer than 20 samples.

    Raises:
        ConfigError: the text is none of these, or a number in it is not positive.
    """
    if text == "iid":
        return Split()
    if match := re.fullmatch(r"P(\d+)C(\d+)(-subset)?", text):
        clients, classes = int(match[1]), int(match[2])
        if clients < 1 or classes < 1:
            raise ConfigError(f"split {text!r}: clients and classes per client must be at least 1.", code="split.form")
        return Split(clients=clients, classes_per_client=classes, subset=match[3] is not None)
    if match := re.fullmatch(r"dir(-?(?:\d+\.?\d*|\.\d+))(?:-min(\d+))?", text):
        _check_beta(float(match[1]))
        return Split(beta=float(match[1]), fewest=int(match[2]) if match[2] else None)
    raise ConfigError(
        f"split {text!r} is not known: give P<clients>C<classes> (P5C2), dir<beta> (dir0.5) or iid.", code="split.form"
    )


def partition(labels: Labels, split: str, clients: int, seed: int) -> list[Rows]:
    """Deal ``labels`` to ``clients`` as ``split`` says.

    Raises:
        ConfigError: the split is not known, names another number of clients, or is not possible with this data.
    """
    parsed = parse_split(split)
    if parsed.clients not in (None, clients):
        raise ConfigError(
            f"split {split!r} is for {parsed.clients} clients, but {clients} take part.", code="split.clients"
        )
    if parsed.classes_per_client is not None:
        return pcdd(labels, clients, parsed.classes_per_client, seed, allow_missing_classes=parsed.subset)
    if parsed.beta is not None:
        return dirichlet(labels, clients, parsed.beta, seed, fewest=parsed.fewest)
    return iid(labels, clients, seed)


def pcdd(
    labels: Labels, clients: int, classes_per_client: int, seed: int, *, allow_missing_classes: bool = False
) -> list[Rows]:
    """Partition into partially class-disjoint data: P<clients>C<classes_per_client> in the paper.

    The classes are given out in order, sigma = ``classes_per_client`` to each client, until all are; the slots that
    remain are filled at random, with no class twice in a client. The samples of a class are split equally (to
    one sample) and at random among the clients that hold it.

    Args:
        labels: (n,) class of each sample; the classes are those that occur.
        classes_per_client: exactly how many classes each client holds.
        allow_missing_classes: with fewer slots than classes, leave the samples of the last classes out.

    Raises:
        ConfigError: the request cannot be met.
    """
    _check_request(labels, clients)
    classes = np.unique(labels)
    slots = clients * classes_per_client
    if not 1 <= classes_per_client <= len(classes):
        raise ConfigError(
            f"{classes_per_client} classes per client are too many: the data has {len(classes)} classes.",
            code="split.classes",
        )
    if slots < len(classes) and not allow_missing_classes:
        raise ConfigError(
            f"{clients} clients with {classes_per_client} classes each have {slots} slots, too few for the "
            f"{len(classes)} classes of the data; take more clients or more classes per client.",
            code="split.too-few-slots",
        )
    generator = numpy_generator(seed, "partition")
    holders: dict[int, list[int]] = {int(c): [] for c in classes}
    for client in range(clients):
        first = client * classes_per_client
        held = classes[first : first + classes_per_client]
        missing = classes_per_client - len(held)
        drawn = generator.choice(np.setdiff1d(classes, held), size=missing, replace=False)
        for c in (*held, *drawn):
            holders[int(c)].append(client)

    shares: list[list[Rows]] = [[] for _ in range(clients)]
    for c, holding in holders.items():
        rows = generator.permutation(np.flatnonzero(labels == c))
        if len(rows) < len(holding):
            raise ConfigError(
                f"Class {c} has {len(rows)} samples, too few for the {len(holding)} clients that hold it.",
                code="split.class-too-small",
            )
        if holding:
            for client, share in zip(holding, np.array_split(rows, len(holding)), strict=True):
                shares[client].append(share)
    return [np.sort(np.concatenate(share)) for share in shares]


def dirichlet(labels: Labels, clients: int, beta: float, seed: int, *, fewest: int | None = None) -> list[Rows]:
    """Deal each class in proportions drawn from Dirichlet(beta); drawn again while a client has too few samples.

    Args:
        beta: concentration; the smaller, the more unequal.
        fewest: samples that every client has at least. None is 10, as in the FedMR authors' code, or a quarter of an
            equal share where that is less, but never below the two that training needs.

    Raises:
        ConfigError: beta is not positive, or some client has too few samples in every draw.
    """
    _check_request(labels, clients)
    _check_beta(beta)
    generator = numpy_generator(seed, "partition")
    by_class = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    if fewest is None:
        fewest = max(2, min(_FEWEST, len(labels) // (4 * clients)))
    for _ in range(_DIRICHLET_DRAWS):
        shares: list[list[Rows]] = [[] for _ in range(clients)]
        for rows in by_class:
            proportions = generator.dirichlet(np.full(clients, beta))
            cuts = (np.cumsum(proportions)[:-1] * len(rows)).round().astype(np.int64).clip(0, len(rows))
            for client, share in enumerate(np.split(generator.permutation(rows), cuts)):
                shares[client].append(share)
        parts = [np.sort(np.concatenate(share)) for share in shares]
        if min(map(len, parts)) >= fewest:
            return parts
    raise ConfigError(
        f"Dirichlet({beta}) leaves some of {clients} clients with fewer than {fewest} samples in {_DIRICHLET_DRAWS} "
        f"draws over {len(labels)}; take a larger beta, fewer clients, or a lower minimum (dir{beta:g}-min2).",
        code="split.too-few-samples",
    )


def iid(labels: Labels, clients: int, seed: int) -> list[Rows]:
    """Deal the samples at random in equal shares, to one sample; raise ConfigError if there are too few."""
    _check_request(labels, clients)
    shares = np.array_split(numpy_generator(seed, "partition").permutation(len(labels)), clients)
    return [np.sort(share).astype(np.int64) for share in shares]


def thin(labels: Labels, fraction: float, seed: int) -> Rows:
    """Return the sorted rows of a random ``fraction`` of each class, at least one of each, for smaller studies.

    Raises:
        ConfigError: the fraction is not above 0 and at most 1.
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"fraction must be above 0 and at most 1, not {fraction}.", code="split.fraction")
    generator = numpy_generator(seed, "thin")
    by_class = [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    return np.sort(np.concatenate([rows[: max(1, round(fraction * len(rows)))] for rows in by_class]))


def _check_request(labels: Labels, clients: int) -> None:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ConfigError(
            f"labels must be one integer per sample, not {labels.dtype} of shape {labels.shape}.", code="split.labels"
        )
    if clients < 1:
        raise ConfigError(f"There must be at least 1 client, not {clients}.", code="split.no-clients")
    if clients > len(labels):
        raise ConfigError(
            f"{clients} clients cannot share {len(labels)} samples: some would be empty.", code="split.too-many-clients"
        )


def _check_beta(beta: float) -> None:
    if not (beta > 0 and np.isfinite(beta)):
        raise ConfigError(f"beta of the Dirichlet split must be above 0, not {beta}.", code="split.beta")
