"""``fedmr-med data download``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmr_med.cli.options import Json

if TYPE_CHECKING:
    from rich.progress import Progress


def download(
    dataset: Annotated[str, typer.Argument(help="Name of a dataset: fmnist, svhn, cifar10, cifar100, ...")],
    root: Annotated[
        Path, typer.Option(envvar="FEDMR_MED_DATA", help="Folder of all datasets; the files go to ROOT/DATASET.")
    ] = Path("data"),
    as_json: Json = False,
) -> None:
    """Download a benchmark dataset and check it against its published checksums."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from fedmr_med.data.datasets.base import DATA_VARIABLE
    from fedmr_med.lab.datasets.download import download_dataset

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        paths = download_dataset(dataset, root, lambda name: _Bar(progress, name))
    if as_json:
        typer.echo(json.dumps({"dataset": dataset, "files": [str(path) for path in paths]}))
    else:
        typer.echo(f"{dataset} is in {paths[0].parent}. Jobs find it with {DATA_VARIABLE}={root.resolve()}.")


class _Bar:
    """A line of rich's progress display for one file."""

    def __init__(self, progress: "Progress", name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=None)
        self.total: int | None = None

    def update(self, size: int) -> None:
        self._progress.update(self._task, total=self.total, advance=size)

    def reset(self) -> None:
        self._progress.reset(self._task, total=self.total)

    def close(self) -> None:
        self._progress.stop_task(self._task)
