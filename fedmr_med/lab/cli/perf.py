"""``fedmr-med perf``."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json


def perf(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few repetitions: about a minute.")] = False,
    flamby: Annotated[Path | None, typer.Option(help="A FLamby checkout, to measure its loader as well.")] = None,
    as_json: Json = False,
) -> None:
    """Measure what FedMR, the data path, aggregation and the wire cost, each measured beside what it replaces."""
    from fedmr_med.lab.perf.suite import FULL, QUICK, as_object, measure
    from fedmr_med.report.lines import duration

    plan = QUICK if quick else FULL
    started, done = time.monotonic(), 0

    def announce(text: str) -> None:
        nonlocal done
        left = (plan.stages - done) * (time.monotonic() - started) / done if done else None
        done += 1
        about = "" if left is None else f" (about {duration(left)} left)"
        typer.echo(f"{done}/{plan.stages} measuring {text}{about}", err=True)

    figures = measure(plan, announce, flamby=flamby)
    if as_json:
        typer.echo(json.dumps(as_object(figures)))
        return

    from rich.table import Table

    from fedmr_med.lab.perf.measure import round_to
    from fedmr_med.report.console import wide_console

    console = wide_console(160)
    for compared in dict.fromkeys(figure.compared for figure in figures):
        table = Table("figure", "", "sizes", "median", "quartiles", "n", title=compared, title_justify="left")
        for figure in figures:
            if figure.compared == compared:
                spread = f"{round_to(figure.low)} to {round_to(figure.high)}"
                middle = f"{round_to(figure.value):.12g}"
                table.add_row(figure.name, figure.subject, figure.case, middle, spread, str(figure.repetitions))
        console.print(table)
