"""``fedmr-med robustness``."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, names
from fedmr_med.lab.cli.common import Seeds, numbers


def robustness(
    seeds: Seeds = "0,1,2",
    attacks: Annotated[str, typer.Option(help="Attacks, comma-separated; default: all.")] = "",
    rules: Annotated[str, typer.Option(help="Rules, comma-separated; default: all.")] = "",
    as_json: Json = False,
) -> None:
    """Let one of six sites attack the demo federation, and measure what that costs under each rule."""
    from fedmr_med.lab.studies.poisoning import ATTACKS, RULES, run_all, table
    from fedmr_med.registry import check_known

    chosen = {"--attacks": names(attacks) or tuple(ATTACKS), "--rules": names(rules) or tuple(RULES)}
    for option, known in (("--attacks", ATTACKS), ("--rules", RULES)):
        for name in chosen[option]:
            check_known(name, known, option)
    cells = []
    for cell in run_all(chosen["--attacks"], chosen["--rules"], numbers(seeds)):
        cells.append(cell)
        typer.echo(f"{cell.attack}, {cell.rule}, seed {cell.seed}: {100 * cell.accuracy:.1f}", err=True)
    if as_json:
        typer.echo(json.dumps({"runs": [asdict(cell) for cell in cells]}))
        return

    from fedmr_med.report.console import text_table, wide_console

    first, *rows = table(cells)
    title = "Balanced accuracy of the last model in points, and what the attack costs"
    wide_console(120).print(text_table(title, first, rows))
