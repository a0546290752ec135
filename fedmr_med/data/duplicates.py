"""The same picture under several names: what that does to a test or to labels is said before anybody trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the folds are made of such rows, and say what they found
    from fedmr_med.data.folds import Row

Kind = Literal["folds", "labels", "names"]

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
