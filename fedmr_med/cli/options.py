"""Options and arguments that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Build a network that the model file names by a dotted path: it runs that code."),
]


def names(text: str) -> list[str]:
    """Return the names of a comma-separated list, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
