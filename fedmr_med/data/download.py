"""Getting the datasets from their official places, checked against their published checksums."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedmr_med.data.datasets import DATASETS, RemoteFile
from fedmr_med.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.progress import Progress


def download_dataset(name: str, root: Path) -> list[Path]:
    """Download a dataset's official files into ``root/<name>`` and return their paths.

    Raises:
        ConfigError: there is no such dataset, or nothing to download for it.
        DataError: see :func:`download_files`.
    """
    dataset = DATASETS.get(name)
    if not dataset.files:
        raise ConfigError(f"{name!r} cannot be downloaded. {dataset.about or dataset.how_to_get}")
    return download_files(dataset.files, root / name)


def download_files(files: Sequence[RemoteFile], folder: Path) -> list[Path]:
    """Download files with a progress bar on stderr; a file that is there with the right checksum is kept.

    Each file is written under another name and gets its own once its checksum is right, so an interrupted
    download leaves nothing behind.

    Raises:
        DataError: the server cannot be reached, a checksum is wrong, or the folder cannot be written to.
    """
    import pooch
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    pooch.get_logger().setLevel("WARNING")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    paths = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for file in files:
            downloader = pooch.HTTPDownloader(progressbar=_Bar(progress, file.name), chunk_size=1 << 16)
            try:
                path = pooch.retrieve(file.url, f"md5:{file.md5}", file.name, folder, downloader=downloader)
            except ValueError as e:
                raise DataError(
                    f"{file.url} does not have the published checksum md5 {file.md5}; nothing is kept."
                ) from e
            except OSError as e:
                raise DataError(f"{file.url} cannot be downloaded to {folder}: {e}.") from e
            paths.append(Path(path))
    return paths


class _Bar:
    """The part of tqdm's interface that pooch uses, on a rich progress bar."""

    def __init__(self, progress: "Progress", description: str) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=None)
        self.total: int | None = None

    def update(self, size: int) -> None:
        self._progress.update(self._task, total=self.total, advance=size)

    def reset(self) -> None:
        self._progress.reset(self._task, total=self.total)

    def close(self) -> None:
        self._progress.stop_task(self._task)
