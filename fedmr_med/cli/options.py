"""Options and arguments that several commands have."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

MARKS = {"pass": "ok  ", "note": "note", "fix": "FIX "}
"""What stands before a finding on the screen, by its outcome."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Build a network that the model file names by a dotted path: it runs that code."),
]
Prepared = Annotated[
    bool,
    typer.Option(
        "--prepared",
        help="The images are prepared already, as by `data prepare-isic`: do not do the model's preparation again.",
    ),
]


def answer(as_json: bool, values: Mapping[str, Any], *lines: object) -> None:
    """Print what a command has to say: as one JSON object, or in lines for people."""
    for line in (json.dumps(values),) if as_json else lines:
        typer.echo(line)


def names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
