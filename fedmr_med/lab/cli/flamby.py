"""``fedmr-med flamby``."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, names
from fedmr_med.lab.cli.common import MaxHours, Out, Seeds, WithoutLeaked, end_with_failures, numbers, resumable


def compare(
    context: typer.Context,
    data: Annotated[Path, typer.Option(help="A folder of prepared Fed-ISIC2019, or of --dataset; or 'demo'.")],
    out: Out,
    dataset: Annotated[
        str,
        typer.Option(help="fed_heart_disease and fed_camelyon16 run as in FLamby's benchmark, which has to be there."),
    ] = "fed_isic2019",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Our methods, comma-separated; also 'local' (each centre alone) and 'pooled'. "
            "Default: local,pooled,fedavg,fedmr."
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(help="FLamby's strategies, comma-separated, if FLamby is installed; default: six, '' for none."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds; default: FLamby's, on the demo 3.")] = None,
    updates: Annotated[
        int | None, typer.Option(help="Local updates per round; default: FLamby's 100, on the demo 10.")
    ] = None,
    seeds: Seeds = "0",
    flamby: Annotated[
        Path | None, typer.Option(help="A FLamby checkout; default: FEDMR_MED_FLAMBY's, or the installed package.")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels; default: FLamby's 200, on the demo 32.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images per batch; default: FLamby's 64, on the demo 16.")] = None,
    max_test: Annotated[
        int | None, typer.Option(help="Maximum number of test images per centre; default: all.")
    ] = None,
    centers: Annotated[
        str | None, typer.Option(help="Centres 0 to 5, comma-separated; default: all that have images.")
    ] = None,
    bn: Annotated[
        str | None,
        typer.Option(help="BatchNorm statistics: average, first (FLamby's: the first centre's) or both (default)."),
    ] = None,
    without_leaked: WithoutLeaked = False,
    pretrained: Annotated[
        Path | None, typer.Option(help="ImageNet weights of EfficientNet-b0 (a torch file); default: random weights.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Runs in parallel, which share the cores; 0: one run at a time on all cores.")
    ] = 0,
    max_hours: MaxHours = None,
    as_json: Json = False,
) -> None:
    """Compare our methods with FLamby's under its protocol, on Fed-ISIC2019 unless --dataset names another one.

    The options from --image-size to --pretrained are for Fed-ISIC2019. Resumes after Ctrl-C or a crash.
    """
    # FLamby's progress bars would write over ours. Read when tqdm is imported, and torch does that.
    os.environ.setdefault("TQDM_DISABLE", "1")

    from fedmr_med.data.demo import DEMO
    from fedmr_med.evaluation.results import versioned
    from fedmr_med.files import check_writable
    from fedmr_med.lab.flamby.compare import compare as run
    from fedmr_med.lab.flamby.data import present_centers
    from fedmr_med.lab.flamby.request import ISIC, CompareRequest, SetRequest
    from fedmr_med.lab.flamby.tables import screen_table
    from fedmr_med.report.console import wide_console
    from fedmr_med.schema import validated

    kind: type[CompareRequest] | type[SetRequest] = CompareRequest if dataset == ISIC else SetRequest
    chosen = numbers(centers, "--centers") if centers else None
    if chosen is None and dataset == ISIC and data != DEMO:
        chosen = present_centers(data, flamby)
    # The other options have the names of the request's fields.
    fields = CompareRequest.model_fields.keys() | SetRequest.model_fields.keys()
    content = {name: value for name, value in context.params.items() if name in fields} | {
        "dataset": None if dataset == ISIC else dataset,
        "methods": None if methods is None else names(methods),
        "strategies": None if strategies is None else names(strategies),
        "seeds": numbers(seeds),
        "centers": None if chosen is None else tuple(sorted(chosen)),
        "without_leaked": without_leaked or None,
    }
    given = {name: value for name, value in content.items() if value is not None}
    request = validated(kind, given, "flamby compare")
    check_writable(out)
    with resumable(max_hours):
        results = run(request, out, workers=workers)
    if as_json:
        typer.echo(json.dumps(versioned(results)))
    else:
        wide_console(150).print(screen_table(results))
        if results.missing:
            typer.echo(f"missing: {', '.join(results.missing)}. {results.how_to_get}")
        typer.echo(f"results: {out}")
    if results.failed:
        end_with_failures(f"{len(results.failed)} runs failed; the first: {results.failed[0]}")
