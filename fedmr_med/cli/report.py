"""``fedmr-med report``."""

from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, answer


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
