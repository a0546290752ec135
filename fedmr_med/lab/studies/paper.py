"""The paper's figures by study, from ``paper.yaml``."""

from functools import lru_cache
from pathlib import Path

from fedmr_med.schema import Strict, read_yaml, validated

Vectors = tuple[tuple[float, float], ...]


class PaperRow(Strict):
    """A row of one of the paper's tables.

    Attributes:
        dataset, split: where it was measured.
        splits: the splits it is the average of, instead of one.
        clients: number of clients, where the split does not say.
        rounds: of this row, where the table has other ones than the dataset's usual.
        values: the printed figure of each variant; a text where the paper gives no number.
        seconds: the printed time of each variant.
    """

    dataset: str
    split: str | None = None
    splits: tuple[str, ...] = ()
    clients: int | None = None
    rounds: int | None = None
    values: dict[str, int | float | str]
    seconds: dict[str, float] = {}


class PaperStudy(Strict):
    """What the paper prints about a study.

    Attributes:
        title: table or figure of the paper.
        rows: of a table.
        remarks: where the paper contradicts itself or leaves something open.
        wire: millions of numbers sent, without and with prototypes, by dataset.
        stored: what a client stores, by method.
        optimal, averaged: weights of the classes in the example of section 3.2.
        degrees: the angle between the two.
    """

    title: str
    rows: tuple[PaperRow, ...] = ()
    remarks: tuple[str, ...] = ()
    wire: dict[str, tuple[float, float]] = {}
    stored: dict[str, str] = {}
    optimal: Vectors = ()
    averaged: Vectors = ()
    degrees: float = 0.0


@lru_cache(maxsize=1)
def paper_figures() -> dict[str, PaperStudy]:
    """Return the paper's figures by study."""
    path = Path(__file__).with_name("paper.yaml")
    return {name: validated(PaperStudy, study, f"{path}: {name}") for name, study in read_yaml(path).items()}
