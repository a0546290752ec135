"""The same picture under several names: what that does to a test or to labels is said before anybody trains."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # the folds are made of such rows, and say what they found
    from fedmr_med.data.folds import Row

Kind = Literal["folds", "labels", "names"]

SIMILAR = 0.95
"""Correlation from which on two images are taken for one picture."""

_EDGE = 16  # of a thumbnail
_EVEN = 1.0  # brightness steps of so little in all are noise
_AT_ONCE = 1024  # test images that are compared together
_LISTED = 3
_MEANING: dict[Kind, str] = {
    "folds": "in both folds, so the test is too easy",
    "labels": "with two labels, one of which is wrong",
    "names": "under several names, so they count more than once",
}


@dataclass(frozen=True)
class Duplicate:
    """A picture that a table lists several times.

    Attributes:
        rows: the rows, whose images have the same pixels.
    """

    rows: tuple["Row", ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What is wrong with it: it is in both folds, has two labels, or, if neither, just several names."""
        kinds: list[Kind] = []
        if len({row.fold for row in self.rows}) > 1:
            kinds.append("folds")
        if len({row.label for row in self.rows}) > 1:
            kinds.append("labels")
        return tuple(kinds) or ("names",)

    def __str__(self) -> str:
        return " = ".join(row.image for row in self.rows)


def find_duplicates(rows: "Sequence[Row]", digests: Sequence[str]) -> list[Duplicate]:
    """Return the pictures that occur more than once, in the order of their first row.

    Args:
        rows: the table.
        digests: hash of the pixels of each row's image, "" where they could not be read.
    """
    by_digest: dict[str, list[Row]] = {}
    for row, digest in zip(rows, digests, strict=True):
        if digest:
            by_digest.setdefault(digest, []).append(row)
    return [Duplicate(tuple(same)) for same in by_digest.values() if len(same) > 1]


def find_similar(
    train: "Sequence[Row]", test: "Sequence[Row]", images: Iterable[npt.NDArray[np.uint8]]
) -> "list[tuple[Row, Row]]":
    """Return the pairs of a test and a train image that nearly agree, such as a picture in another size or exposure.

    Two images agree as far as the brightness steps of their thumbnails correlate. Over 3,000,000 pairs of different
    lesions of ISIC2019 one came above ``SIMILAR``, a picture that is there twice. Of copies, all in half their size or
    another exposure do, nine of ten in a third of their size and strongly compressed, and six of seven that were cut
    by 2 % at each edge; those that were turned or mirrored do not.

    Args:
        train, test: the rows.
        images: of the train rows, then of the test rows, (height, width, 3).
    """
    steps = np.array([_steps(image) for image in images], dtype=np.float32).reshape(len(train) + len(test), -1)
    known, pairs = steps[: len(train)], []
    for start in range(0, len(test), _AT_ONCE):
        close = steps[len(train) + start :][:_AT_ONCE] @ known.T >= SIMILAR
        pairs += [(test[start + row], train[column]) for row, column in np.argwhere(close).tolist()]
    return pairs


def _steps(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the differences between neighbours of a grey thumbnail, of length 1; zeros for an even or tiny image."""
    grey = image.mean(2, dtype=np.float32)
    if min(grey.shape) < _EDGE:
        return np.zeros(2 * _EDGE * (_EDGE - 1), np.float32)
    rows, columns = (np.linspace(0, size, _EDGE + 1).astype(np.int64) for size in grey.shape)
    cells = np.add.reduceat(np.add.reduceat(grey, rows[:-1], 0), columns[:-1], 1)
    cells /= np.outer(np.diff(rows), np.diff(columns))
    steps = np.concatenate([np.diff(cells, axis=axis).ravel() for axis in (0, 1)])
    length = float(np.linalg.norm(steps))
    return (steps / max(length, _EVEN) * (length > _EVEN)).astype(np.float32)


def in_sentences(duplicates: Sequence[Duplicate], listed: int = _LISTED) -> tuple[str, ...]:
    """Return one sentence for each thing that is wrong, with the first pictures it is wrong with."""
    sentences = []
    for kind, meaning in _MEANING.items():
        of_kind = [duplicate for duplicate in duplicates if kind in duplicate.kinds]
        if of_kind:
            count = "1 picture is" if len(of_kind) == 1 else f"{len(of_kind)} pictures are"
            more = f"; and {len(of_kind) - listed} more" if len(of_kind) > listed else ""
            sentences.append(f"{count} {meaning}: {'; '.join(map(str, of_kind[:listed]))}{more}.")
    return tuple(sentences)
