"""Tables on standard output."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def wide_console(width: int) -> Console:
    """Return a console as wide as the terminal, or of ``width`` characters where there is none: a file or a pipe."""
    return Console(width=None if Console().is_terminal else width)


def text_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", names: int = 1
) -> Table:
    """Return a table of text whose first ``names`` columns are names, and the others figures, which never wrap."""
    table, body = Table(title=title, caption=caption or None), [tuple(row) for row in rows]
    for number, column in enumerate(columns):
        widest = max((len(row[number]) for row in body), default=0)
        table.add_column(column, justify="left" if number < names else "right", min_width=widest, overflow="fold")
    for row in body:
        table.add_row(*row)
    return table
