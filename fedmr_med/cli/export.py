"""``fedmr-med export``."""

from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import AllowCode, Json, answer


def export(
    model: Annotated[Path, typer.Argument(help="A model file, such as best_model.pt.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The bundle's folder.")] = Path("bundle"),
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write models/model.onnx.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="results.json of the run, for the model card; default: the one beside MODEL.")
    ] = None,
    also: Annotated[list[str] | None, typer.Option(help="Another installed exporter, by its name.")] = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
) -> None:
    """Write a model as a MONAI Bundle with its model card, and as ONNX."""
    from fedmr_med.export import EXPORTERS, Source

    names = dict.fromkeys(["bundle", "card", *(["onnx"] if onnx else []), *(also or [])])
    exporters = [EXPORTERS.get(name, "--also") for name in names]
    source = Source.open(model, results, allow_code=allow_code)
    written = [path for exporter in exporters for path in exporter(source, out)]
    answer(as_json, {"files": [str(path) for path in written]}, *written)
