"""``fedmr-med demo``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the report, the picture and the model.")] = Path(
        "fedmr-demo"
    ),
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="A seed, 0 by default; give several for a spread. Each takes 90 seconds."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of each run; fewer are faster and show less.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show on generated pictures what hospitals gain: alone, FedAvg, FedMR, and FedMR while one of them opts out."""
    if not as_json:
        typer.echo("Drawing pictures for four hospitals ...", err=True)  # before the slow imports
    from dataclasses import asdict

    from fedmr_med.report.console import text_table, wide_console
    from fedmr_med.report.elements import DEMO_NOTE
    from fedmr_med.runner.showcase.page import CAPTION, COLUMNS, cells
    from fedmr_med.runner.showcase.plan import ROUNDS
    from fedmr_med.runner.showcase.show import MODEL, PICTURE, demo

    shown = demo(out, seeds=seed or [0], rounds=rounds or ROUNDS, quiet=as_json)
    if as_json:
        rows = [asdict(row) for row in shown.rows]
        typer.echo(json.dumps({"report": str(shown.report), "picture": str(out / PICTURE), "rows": rows}))
        return
    caption = f"{DEMO_NOTE}\n{CAPTION}"
    wide_console(110).print(
        text_table("What each way of training came to", COLUMNS, map(cells, shown.rows), caption=caption)
    )
    typer.echo(f"The picture: {out / PICTURE}")
    typer.echo(f"Open {shown.report}")
    typer.echo(f"Next: fedmr-med predict {out / MODEL} {out / 'images'} -o predictions.csv")
