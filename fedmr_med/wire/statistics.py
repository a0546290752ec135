"""The wire format of a head exchange: a site's answer to the task ``head``.

Two parts, ``kept`` and ``held_out``, each with the shared classes' sums and counts and, where the site shares it, one
within-class scatter matrix, of which the upper triangle travels. In float64: the head of all sites is then the head of
pooled data.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmr_med.arrays import Arrays
from fedmr_med.errors import WireError
from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.prototypes import ClassSums
from fedmr_med.statistics.head import HeadStatistics, symmetric, triangle_of
from fedmr_med.wire.codec import ROUND, Message, whole_number

KEPT, HELD_OUT = "kept", "held_out"
SCATTER = "scatter"
_KEYS = {"classes", "counts", "sums"}
_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class HeadReply:
    """What a site contributes to the closed-form head.

    Attributes:
        site: name of the site.
        round: completed rounds of the model that made the features.
        kept, held_out: statistics of its training images, and of those set aside to choose the shrinkage; None where it
            shares none.
        bytes_up: size of the arrays sent.
    """

    site: str
    round: int
    kept: HeadStatistics | None = None
    held_out: HeadStatistics | None = None
    bytes_up: int = 0


def encode_statistics(reply: HeadReply) -> Message:
    """Encode a site's statistics; what it does not share has no key in it."""
    parts = {KEPT: reply.kept, HELD_OUT: reply.held_out}
    return Message({name: _rows(part) for name, part in parts.items() if part is not None}, {ROUND: reply.round})


def decode_statistics(message: Message, site: str, *, num_classes: int, feature_size: int) -> HeadReply:
    """Decode a site's statistics.

    Raises:
        WireError: they do not have the agreed form, or hold values that no features add up to.
    """
    unexpected = message.parts.keys() - {KEPT, HELD_OUT}
    if unexpected:
        raise WireError(
            f"the statistics have an unexpected part {min(unexpected)!r}", code="wire.unasked", key=min(unexpected)
        )
    parts = {name: _statistics(name, rows, num_classes, feature_size) for name, rows in message.parts.items()}
    if HELD_OUT in parts and KEPT not in parts:
        raise WireError("held-out statistics without the others", code="wire.form", key="held-out")
    return HeadReply(
        site, whole_number(message.meta, ROUND), parts.get(KEPT), parts.get(HELD_OUT), bytes_up=message.size
    )


def _rows(statistics: HeadStatistics) -> Arrays:
    classes = statistics.sums.counts.nonzero().flatten()
    rows = {
        "classes": classes.numpy(),
        "counts": statistics.sums.counts[classes].numpy(),
        "sums": statistics.sums.sums[classes].numpy(),
    }
    if bool(statistics.scattered.counts.any()):
        rows[SCATTER] = triangle_of(statistics.scatter).numpy()
    return rows


def _statistics(name: str, rows: Arrays, num_classes: int, feature_size: int) -> HeadStatistics:
    if rows.keys() - {SCATTER} != _KEYS:
        raise WireError(f"the {name} statistics have the keys {sorted(rows)}", code="wire.form", key=name)
    classes, counts, sums = rows["classes"], rows["counts"], rows["sums"]
    if classes.dtype != np.int64 or counts.dtype != np.int64 or sums.dtype != _FLOAT64:
        raise WireError(f"the {name} statistics do not have the agreed types", code="wire.form", key=name)
    if classes.ndim != 1 or counts.shape != classes.shape or sums.shape != (len(classes), feature_size):
        shapes = f"{sums.shape} for {classes.shape} classes and {counts.shape} counts"
        raise WireError(f"the {name} sums have shape {shapes}", code="wire.form", key=name)
    if not len(classes) or (classes < 0).any() or (classes >= num_classes).any() or (np.diff(classes) <= 0).any():
        raise WireError(
            f"the {name} statistics name no class, one twice, or one that does not exist", code="wire.range", key=name
        )
    if (counts < 1).any() or (counts > MAX_IMAGES).any():
        raise WireError(
            f"the {name} statistics have a count that is not between 1 and {MAX_IMAGES}", code="wire.counts", key=name
        )
    if not np.isfinite(sums).all():
        raise WireError(f"the {name} statistics have NaN or infinite values", code="wire.not-finite", key=name)
    both = ClassSums.zeros(num_classes, feature_size)
    both.sums[torch.from_numpy(classes)] = torch.from_numpy(sums)
    both.counts[torch.from_numpy(classes)] = torch.from_numpy(counts)
    if SCATTER not in rows:
        return HeadStatistics.from_sums(both)
    return HeadStatistics(both, both, _matrix(name, rows[SCATTER], feature_size))


def _matrix(name: str, triangle: npt.NDArray[Any], size: int) -> torch.Tensor:
    """Return the scatter matrix (d, d), given its upper triangle."""
    expected = (size * (size + 1) // 2,)
    if triangle.dtype != _FLOAT64 or triangle.shape != expected:
        raise WireError(
            f"the {name} scatter is {triangle.dtype} of shape {triangle.shape}, not float64 of {expected}",
            code="wire.form",
            key=name,
        )
    if not np.isfinite(triangle).all():
        raise WireError(f"the {name} statistics have NaN or infinite values", code="wire.not-finite", key=name)
    matrix = symmetric(torch.from_numpy(triangle), size)
    if bool((matrix.diagonal() < 0).any()):
        raise WireError(f"the {name} scatter has a negative variance", code="wire.range", key=name)
    return matrix
