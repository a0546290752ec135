"""``fedmr-med flamby``."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, names
from fedmr_med.lab.cli.common import MaxHours, end_with_failures, numbers, resumable


def compare(
    data: Annotated[Path, typer.Option(help="A folder of prepared Fed-ISIC2019 or of --dataset, or 'demo'.")],
    out: Annotated[Path, typer.Option(help="Folder for the results; a comparison that was stopped resumes there.")],
    dataset: Annotated[
        str, typer.Option(help="Another dataset of FLamby's, by its own classes, such as fed_heart_disease.")
    ] = "fed_isic2019",
    methods: Annotated[
        str, typer.Option(help="Our methods, comma-separated; also 'local' (each centre alone) and 'pooled'.")
    ] = "local,pooled,fedavg,fedmr",
    strategies: Annotated[
        str | None,
        typer.Option(help="FLamby's strategies, comma-separated, if FLamby is installed; default: six, '' for none."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds; default: FLamby's 9, on the demo 3.")] = None,
    updates: Annotated[
        int | None, typer.Option(help="Local updates per round; default: FLamby's 100, on the demo 10.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated.")] = "0",
    flamby: Annotated[Path | None, typer.Option(help="A FLamby checkout; default: the installed package.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels; default: FLamby's 200, on the demo 32.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images per batch; default: FLamby's 64, on the demo 16.")] = None,
    max_test: Annotated[
        int | None, typer.Option(help="Maximum number of test images per centre; default: all.")
    ] = None,
    centers: Annotated[
        str | None, typer.Option(help="Centres 0 to 5, comma-separated; default: all that have images.")
    ] = None,
    bn: Annotated[
        str, typer.Option(help="BatchNorm statistics: average, first (FLamby's: the first centre's) or both.")
    ] = "both",
    without_leaked: Annotated[
        bool, typer.Option("--without-leaked", help="Leave out test images of lesions that are in a train fold.")
    ] = False,
    pretrained: Annotated[
        Path | None, typer.Option(help="ImageNet weights of EfficientNet-b0 (a torch file); default: random weights.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Runs in parallel, which share the cores; 0: one run at a time on all cores.")
    ] = 0,
    max_hours: MaxHours = None,
    as_json: Json = False,
) -> None:
    """Compare our methods with FLamby's on Fed-ISIC2019, under its protocol. Resumes after Ctrl-C or a crash."""
    # FLamby's progress bars would write over ours. Read when tqdm is imported, and torch does that.
    os.environ.setdefault("TQDM_DISABLE", "1")

    from fedmr_med.data.demo import DEMO
    from fedmr_med.evaluation.results import versioned
    from fedmr_med.files import check_writable
    from fedmr_med.lab.flamby.compare import compare as run
    from fedmr_med.lab.flamby.data import present_centers
    from fedmr_med.lab.flamby.request import CompareRequest
    from fedmr_med.lab.flamby.tables import screen_table
    from fedmr_med.report.console import wide_console
    from fedmr_med.schema import validated

    if dataset != "fed_isic2019":
        ours = tuple(name for name in names(methods) if name not in ("local", "pooled"))
        given = {"rounds": rounds, "updates": updates, "seeds": numbers(seeds), "flamby": flamby}
        _on_another(
            dataset, data, ours, {key: value for key, value in given.items() if value is not None}, out, as_json
        )
        return
    chosen = numbers(centers, "--centers") if centers else None
    if chosen is None and data != DEMO:
        chosen = present_centers(data, flamby)
    content = {
        "data": data,
        "methods": names(methods),
        "strategies": None if strategies is None else names(strategies),
        "rounds": rounds,
        "updates": updates,
        "seeds": numbers(seeds),
        "flamby": flamby,
        "image_size": image_size,
        "batch": batch,
        "max_test": max_test,
        "centers": None if chosen is None else tuple(sorted(chosen)),
        "bn": bn,
        "without_leaked": without_leaked,
        "pretrained": pretrained,
    }
    request = validated(CompareRequest, content, "flamby compare")
    check_writable(out)
    with resumable(max_hours):
        results = run(request, out, workers=workers)
    if as_json:
        typer.echo(json.dumps(versioned(results)))
    else:
        wide_console(150).print(screen_table(request, results.rows, "\n".join(results.notes)))
        if results.missing:
            typer.echo(f"missing: {', '.join(results.missing)}. {results.how_to_get}")
        typer.echo(f"results: {out}")
    if results.failed:
        end_with_failures(f"{len(results.failed)} runs failed; the first: {results.failed[0]}")


def _on_another(
    dataset: str, data: Path, methods: tuple[str, ...], given: dict[str, object], out: Path, as_json: bool
) -> None:
    """Compare our methods on another of FLamby's datasets."""
    from fedmr_med.evaluation.results import versioned
    from fedmr_med.lab.flamby.results import SetRequest
    from fedmr_med.lab.flamby.sets import compare_on
    from fedmr_med.report.console import text_table, wide_console
    from fedmr_med.schema import validated

    content = {"dataset": dataset, "data": data, "methods": methods, **given}
    results = compare_on(validated(SetRequest, content, "flamby compare"), out)
    if as_json:
        typer.echo(json.dumps(versioned(results)))
        return
    rows = [(row.method, str(row.seed), row.test, f"{row.balanced_accuracy:.3f}") for row in results.rows]
    columns = ("method", "seed", "test", "balanced accuracy")
    table = text_table(dataset, columns, rows, caption="\n".join(results.notes), names=3)
    wide_console(120).print(table)
    typer.echo(f"results: {out}")
