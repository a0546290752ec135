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
    """Return a table of text whose first ``names`` columns are names, and the others figures."""
    table = Table(title=title, caption=caption or None)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < names else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
