"""Options and arguments that several commands have."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

_MARKS = {"pass": "ok  ", "note": "note", "fix": "FIX "}

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting, such as train.lr=0.05 or mu1=0.1.")
]


def answer(as_json: bool, values: Mapping[str, Any], *lines: object, ok: bool = True) -> None:
    """Print what a command has to say: as one JSON object, or in lines for people.

    Raises:
        typer.Exit: with code 1, if something has to be done about it.
    """
    for line in (json.dumps(values),) if as_json else lines:
        typer.echo(line)
    if not ok:
        raise typer.Exit(1)


def judge(as_json: bool, key: str, found: Iterable[Any], text: Callable[[Any], str]) -> None:
    """Print findings (dataclasses with an ``outcome``) as they are made, and as a list under ``key``.

    Raises:
        typer.Exit: with code 1, if one of them has to be fixed.
    """
    findings = []
    for finding in found:
        findings.append(asdict(finding))
        typer.echo(f"{_MARKS[findings[-1]['outcome']]} {text(finding)}", err=as_json)
    ok = all(finding["outcome"] != "fix" for finding in findings)
    answer(as_json, {"ok": ok, key: findings}, ok=ok)


def names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
