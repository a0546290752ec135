"""The frozen part of a network: arrays that no round changes, and a digest that names them.

The server sends the arrays until a site has answered with them; the digest alone is enough afterwards, since the site
has its features on disk (:mod:`fedmr_med.site.features`).
"""

import hashlib
from dataclasses import dataclass, replace

from fedmr_med.arrays import Arrays, add_to_hash


@dataclass(frozen=True)
class Backbone:
    """Everything of a network but its classifier.

    Attributes:
        digest: of names, types, shapes and values: 32 hexadecimal digits.
        arrays: weights and buffers by name; empty where the digest alone is sent.
    """

    digest: str
    arrays: Arrays

    @classmethod
    def of(cls, arrays: Arrays) -> "Backbone":
        """Return the backbone that consists of these arrays."""
        return cls(digest_of(arrays), arrays)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def named(self) -> "Backbone":
        """Return its name alone, without the arrays."""
        return replace(self, arrays={})


def digest_of(arrays: Arrays) -> str:
    """Return a hash of names, types, shapes and values."""
    found = hashlib.blake2b(digest_size=16)
    add_to_hash(found, arrays)
    return found.hexdigest()
