"""Whose picture it is: the columns of a table that name patients or lesions, whose pictures stay in one fold."""

import re
from collections.abc import Mapping, Sequence

KNOWN = (
    *("group", "patient", "patientid", "subject", "subjectid", "participant", "participantid", "person", "personid"),
    *("caseid", "mrn", "lesion", "lesionid"),
)
"""What such columns are called, in lower case and without signs between the letters."""

_LIKE = re.compile(
    r"(^|[^a-z])(id|uid|nr|no|number)$|patient|lesion|subject|study|series|exam|visit|accession|encounter|person|mrn"
)
_LARGEST = 50
"""Images that a value of an unknown column has on average, at most; a hospital's number has more."""


def known_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that name patients or lesions."""
    return tuple(column for column in columns if re.sub(r"[^a-z0-9]", "", column.lower()) in KNOWN)


def similar_columns(
    columns: Sequence[str], records: Sequence[Mapping[str, str]], without: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns, but for some, that look like numbers of patients: by their name, and as values repeat."""
    return tuple(
        column
        for column in columns
        if column not in without and _LIKE.search(column) and _repeats([record[column] for record in records])
    )


def _repeats(values: Sequence[str]) -> bool:
    known = [value for value in values if value]
    return len(set(known)) < len(known) <= _LARGEST * len(set(known))


def group_names(records: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    """Return the group of each record: records that agree in any of the columns are of one; "" where none has a value.

    A patient's lesions are one group, whichever of the columns are filled in.
    """
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(key: tuple[str, str]) -> tuple[str, str]:
        while (parent := parents.setdefault(key, key)) != key:
            parents[key] = parents[parent]
            key = parent
        return key

    keys = [[(column, record[column]) for column in columns if record[column]] for record in records]
    for own in keys:
        for key in own[1:]:
            parents[root(key)] = root(own[0])
    found = [root(own[0]) if own else None for own in keys]
    return ["" if key is None else key[1] if len(columns) == 1 else " ".join(key) for key in found]
