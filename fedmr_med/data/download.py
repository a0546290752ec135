"""Getting the benchmark datasets from their official places, checked against their published checksums."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedmr_med.data.archives import CIFAR10, CIFAR100, FMNIST_FILES, SVHN_FILES
from fedmr_med.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.progress import Progress

_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
_FMNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download, with the checksum its publisher gives."""

    name: str
    url: str
    md5: str


def _files(base: str, names: Sequence[str], *md5: str) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(name, base + name, digest) for name, digest in zip(names, md5, strict=True))


REMOTE_FILES: dict[str, tuple[RemoteFile, ...]] = {
    "cifar10": _files(_CIFAR, [CIFAR10.archive], "c58f30108f718f92721af3b95e74349a"),
    "cifar100": _files(_CIFAR, [CIFAR100.archive], "eb9058c3a382ffc7106e4002c42a8d85"),
    "svhn": _files(_SVHN, SVHN_FILES, "e26dedcc434d2e4c54c9b2d4a06d8373", "eb5a983be6a315427106f1b164d9cef3"),
    "fmnist": _files(
        _FMNIST,
        FMNIST_FILES,
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
}


def download_dataset(name: str, root: Path) -> list[Path]:
    """Download a dataset's official files into ``root/<name>`` and return their paths.

    Raises:
        ConfigError: there is nothing to download for this name.
        DataError: see :func:`download_files`.
    """
    if name not in REMOTE_FILES:
        raise ConfigError(
            f"{name!r} cannot be downloaded ({', '.join(REMOTE_FILES)} can). Shakespeare is made by the LEAF scripts; "
            "Fed-ISIC2019, HyperKvasir and ODIR have licences to accept at their own sites."
        )
    return download_files(REMOTE_FILES[name], root / name)


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
