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

    started = time.monotonic()

    def announce(done: int, stages: int, text: str) -> None:
        left = f" (about {duration((stages - done) * (time.monotonic() - started) / done)} left)" if done else ""
        typer.echo(f"{done + 1}/{stages} measuring {text}{left}", err=True)

    figures = measure(QUICK if quick else FULL, announce, flamby=flamby)
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
