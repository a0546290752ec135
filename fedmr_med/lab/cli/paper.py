"""``fedmr-med paper``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json
from fedmr_med.lab.cli.common import MaxHours, numbers, resumable


def paper(
    study: Annotated[
        str,
        typer.Argument(
            help="acc, larger, communication, burden, lite, optout, ablation, eigenvalues, mu1, dirichlet, prototype, "
            "morereal, toy, motivation, intra-curve or heatmap."
        ),
    ],
    budget: Annotated[str, typer.Option(help="smoke (seconds), cpu (small networks) or full (the paper's).")] = "smoke",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of all datasets; default: FEDMR_MED_DATA, or generated data for the smoke budget."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/paper/STUDY-BUDGET.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated; default: the budget's.")] = "",
    dataset: Annotated[str | None, typer.Option(help="Only the rows of this dataset.")] = None,
    split: Annotated[str | None, typer.Option(help="Only the rows of this partition.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any other setting of the jobs.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Runs in parallel; default: the number of cores.")] = None,
    max_hours: MaxHours = None,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the FedMR paper, with the published numbers beside the measured ones."""
    from fedmr_med.evaluation.results import versioned
    from fedmr_med.files import check_writable
    from fedmr_med.jobs.changes import parse_settings
    from fedmr_med.lab.studies import catalog

    setting = catalog.make_setting(
        study,
        budget,
        out or Path("runs", "paper", f"{study}-{budget}"),
        seeds=numbers(seeds) if seeds else (),
        data=data,
        workers=(0 if budget == "smoke" else None) if workers is None else workers,
        dataset=dataset,
        split=split,
        settings=parse_settings(settings or []),
    )
    check_writable(setting.out)
    with resumable(max_hours):
        result = catalog.run_study(setting)
    if as_json:
        typer.echo(json.dumps(versioned(result)))
        return

    from fedmr_med.report.console import text_table, wide_console

    console = wide_console(140)
    for table in result.tables:
        columns = list(table.rows[0])
        rows = (list(map(str, row.values())) for row in table.rows)
        console.print(text_table(table.title, columns, rows, names=len(columns)))
    if result.stand_ins:
        console.print(catalog.STAND_INS, style="bold yellow")
    console.print("What differs from the paper's set-up:", style="bold")
    for line in [*result.differs, *result.notes]:
        console.print(f"- {line}", highlight=False)
    console.print(f"report: {setting.out / 'report.html'}", highlight=False)
