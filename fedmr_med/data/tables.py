"""Tables as files: reading what people and their spreadsheets wrote, and writing our own."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedmr_med.errors import DataError

_DELIMITERS = ",;\t|"
_LISTED, _RANGES = 10, 20


@dataclass(frozen=True)
class Table:
    """A table as it stands in its file.

    Attributes:
        columns: its column names, in lower case.
        records: number of the row in the file, and the value of each column.
        problems: number of the row and what is wrong with it, for rows that are no records.
    """

    path: Path
    columns: tuple[str, ...]
    records: tuple[tuple[int, dict[str, str]], ...]
    problems: tuple[tuple[int, str], ...]


def open_table(path: Path, required: Sequence[str]) -> Table:
    """Read a table of any of the usual kinds.

    Values are separated by commas, semicolons, tabs or bars, whichever the first line has most of, and may have spaces
    around them. The text is UTF-8, UTF-16, or else Windows-1252, which holds Latin-1's letters.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    try:
        text = _decode(path.read_bytes())
        first = text.split("\n", 1)[0]
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
        columns = tuple(name.strip().lower() for name in next(reader, []))
        missing = [name for name in required if name not in columns]
        if missing:
            raise DataError(
                f"{path} has no column {missing[0]!r} (its columns: {', '.join(columns) or 'none'}).",
                code="data.column",
                key=missing[0],
            )
        records, problems = [], []
        for values in reader:
            if len(values) == len(columns):
                record = dict(zip(columns, (value.strip() for value in values), strict=True))
                records.append((reader.line_num, record))
            elif any(value.strip() for value in values):
                problems.append((reader.line_num, f"it does not have {len(columns)} values"))
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise DataError(f"{path} cannot be read: {e}.", code="file.unreadable") from e
    return Table(path, columns, tuple(records), tuple(problems))


def read_table(path: Path, required: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the records of a table, each with the name of its file and row for error messages.

    Raises:
        DataError: the file cannot be read, or lacks a column or a value.
    """
    table = open_table(path, required)
    if table.problems:
        raise problems_error(path, table.problems)
    for row, record in table.records:
        yield f"{path}, row {row}", record


def problems_error(path: Path, problems: Sequence[tuple[int, str]]) -> DataError:
    """Return the error that names what is wrong with a table, and in which rows."""
    sentences = by_problem(problems)
    more = f"; and {len(sentences) - _LISTED} more problems" if len(sentences) > _LISTED else ""
    return DataError(f"{path}, {'; '.join(sentences[:_LISTED])}{more}.", code="data.row")


def by_problem(problems: Sequence[tuple[int, str]]) -> list[str]:
    """Return each problem once, with the rows that have it, in the order of the first of them."""
    rows: dict[str, list[int]] = {}
    for row, problem in sorted(problems):
        rows.setdefault(problem, []).append(row)
    sentences = []
    for problem, numbers in rows.items():
        ranges = spans(numbers)
        more = f" and {len(ranges) - _RANGES} more ranges" if len(ranges) > _RANGES else ""
        which = "row" if len(numbers) == 1 else "rows"
        sentences.append(f"{which} {', '.join(ranges[:_RANGES])}{more}: {problem}")
    return sentences


def spans(numbers: Iterable[int], to: str = "-") -> list[str]:
    """Return whole numbers as text, in order, those that follow each other as one span."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return [to.join(map(str, span)) for span in found]


def _decode(content: bytes) -> str:
    """Return the text of a file, whichever program wrote it."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    if b"\0" in content[:200]:
        # UTF-16 without its mark: the zero bytes of Latin letters are the second of each pair, or the first.
        return content.decode("utf-16-le" if content[1:200:2].count(0) >= content[0:200:2].count(0) else "utf-16-be")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def table_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn a failure to write, such as a full disk, into a DataError that names the place."""
    try:
        yield
    except OSError as e:
        raise DataError(f"{place} cannot be written: {e.strerror or e}.", code="file.not-writable") from e
