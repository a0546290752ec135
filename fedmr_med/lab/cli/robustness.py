"""``fedmr-med robustness``."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from fedmr_med.cli.options import Json
from fedmr_med.lab.cli.common import numbers


def robustness(
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated.")] = "0,1,2",
    attacks: Annotated[str, typer.Option(help="Attacks, comma-separated; default: all.")] = "",
    rules: Annotated[str, typer.Option(help="Rules, comma-separated; default: all.")] = "",
    as_json: Json = False,
) -> None:
    """Let one of six sites attack the demo federation, and measure what that costs under each rule."""
    from fedmr_med.lab.studies import poisoning

    chosen = poisoning.named(attacks, poisoning.ATTACKS, "attacks")
    cells = []
    for cell in poisoning.run_all(chosen, poisoning.named(rules, poisoning.RULES, "rules"), numbers(seeds)):
        cells.append(cell)
        typer.echo(f"{cell.attack}, {cell.rule}, seed {cell.seed}: {100 * cell.accuracy:.1f}", err=True)
    if as_json:
        typer.echo(json.dumps({"runs": [asdict(cell) for cell in cells]}))
        return

    from fedmr_med.report.console import text_table, wide_console

    first, *rows = poisoning.table(cells)
    title = "Balanced accuracy of the last model in points, and what the attack costs"
    wide_console(120).print(text_table(title, first, rows))
