"""Reading CSV files that people wrote."""

import csv
from collections.abc import Iterator
from pathlib import Path

from fedmr_med.errors import DataError


def read_table(path: Path, required: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the records of a CSV file, each with the name of its file and row for error messages.

    Raises:
        DataError: the file cannot be read, or lacks a column or a value.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or ()
            missing = [name for name in required if name not in columns]
            if missing:
                raise DataError(f"{path} has no column {missing[0]!r} (its columns: {', '.join(columns) or 'none'}).")
            for record in reader:
                where = f"{path}, row {reader.line_num}"
                if None in record or None in record.values():
                    raise DataError(f"{where}: it does not have {len(columns)} values.")
                yield where, {name: value.strip() for name, value in record.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise DataError(f"{path} cannot be read: {e}.") from e
