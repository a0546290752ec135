"""``fedmr-med data download``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.data.benchmark import DATA_VARIABLE


def download(
    dataset: Annotated[str, typer.Argument(help="Name of a dataset: fmnist, svhn, cifar10, cifar100, ...")],
    root: Annotated[
        Path, typer.Option(envvar=DATA_VARIABLE, help="Folder of all datasets; the files go to ROOT/DATASET.")
    ] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Download a benchmark dataset and check it against its published checksums."""
    from fedmr_med.data.download import download_dataset

    paths = download_dataset(dataset, root)
    if as_json:
        typer.echo(json.dumps({"dataset": dataset, "files": [str(path) for path in paths]}))
    else:
        typer.echo(f"{dataset} is in {paths[0].parent}. Jobs find it with {DATA_VARIABLE}={root.resolve()}.")
