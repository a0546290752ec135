"""Random numbers: the only place where they are decided.

Every random number comes from a *stream*, a tuple such as ``(seed, site, round, epoch, index)``. Nothing is
carried over from one round to the next, so a process that was restarted draws the same numbers as one that
was not.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def derive_seed(*stream: int | str) -> int:
    """Return a 63-bit seed for a stream. Equal streams give equal seeds on every machine."""
    digest = hashlib.blake2b(repr(stream).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def numpy_generator(*stream: int | str) -> np.random.Generator:
    """Return a numpy generator for a stream."""
    return np.random.default_rng(derive_seed(*stream))


@contextmanager
def torch_stream(*stream: int | str) -> Iterator[None]:
    """Run the body with torch's global generators seeded for a stream, and restore them afterwards.

    Dropout and drop-connect draw from the global generators. Restoring them keeps several sites in one
    process independent of each other.
    """
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(*stream))
        yield
