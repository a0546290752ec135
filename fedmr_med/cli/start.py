"""``fedmr-med init``, ``demo`` and ``report``: where people begin, and where they end."""

from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, answer


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(),
    as_json: Json = False,
) -> None:
    """Write what a federation starts from: provisioning/project.yml, and sites/ with a folder per hospital."""
    from fedmr_med.jobs.templates import write_templates

    written = [str(path) for path in write_templates(folder)]
    answer(as_json, {"files": written}, *written, "Edit them; then `fedmr-med deploy provision -w WORKSPACE`.")


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
    if not as_json:
        table, caption = map(cells, shown.rows), f"{DEMO_NOTE}\n{CAPTION}"
        wide_console(110).print(text_table("What each way of training came to", COLUMNS, table, caption=caption))
    rows = [asdict(row) for row in shown.rows]
    answer(
        as_json,
        {"report": str(shown.report), "picture": str(out / PICTURE), "rows": rows},
        f"The picture: {out / PICTURE}",
        f"Open {shown.report}",
        f"Next: fedmr-med predict {out / MODEL} {out / 'images'} -o predictions.csv",
    )


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Simulator workspace, downloaded chain, bench, paper or flamby folder, a hospital's kit, or the "
            "findings of `privacy audit`."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The HTML file to write.")] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Write one HTML page about runs, several of them side by side; it opens offline in any browser."""
    from fedmr_med.files import check_writable
    from fedmr_med.report.document import write_report

    check_writable(out.parent)
    sources = write_report(runs, out)
    listed = [{"kind": type(source).__name__, "place": str(source.place)} for source in sources]
    answer(as_json, {"report": str(out), "sources": listed}, f"report: {out}")
