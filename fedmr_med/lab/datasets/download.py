"""Getting the datasets from their official places, checked against their published checksums."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedmr_med.data.datasets import DATASETS, RemoteFile
from fedmr_med.errors import ConfigError, DataError

NewBar = Callable[[str], Any]
"""Makes what is told of a file's bytes as they come, given its name: the part of tqdm's interface that pooch uses.

It has ``total`` bytes, set once they are known, and ``update``, ``reset`` and ``close``.
"""


def download_dataset(name: str, root: Path, progress: NewBar | None = None) -> list[Path]:
    """Download a dataset's official files into ``root/<name>`` and return their paths.

    Raises:
        ConfigError: there is no such dataset, or nothing to download for it.
        DataError: see :func:`download_files`.
    """
    dataset = DATASETS.get(name)
    if not dataset.files:
        why = f"{name!r} cannot be downloaded. {dataset.about or dataset.how_to_get}"
        raise ConfigError(why, code="data.no-download")
    return download_files(dataset.files, root / name, progress)


def download_files(files: Sequence[RemoteFile], folder: Path, progress: NewBar | None = None) -> list[Path]:
    """Download files; one that is there with the right checksum is kept.

    Each file is written under another name and gets its own once its checksum is right, so an interrupted
    download leaves nothing behind. ``progress`` makes the bar that each reports to.

    Raises:
        DataError: the server cannot be reached, a checksum is wrong, or the folder cannot be written to.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    paths = []
    for file in files:
        bar = progress(file.name) if progress else False
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
        try:
            path = pooch.retrieve(file.url, f"md5:{file.md5}", file.name, folder, downloader=downloader)
        except ValueError as e:
            why = f"{file.url} does not have the published checksum md5 {file.md5}; nothing is kept."
            raise DataError(why, code="data.checksum") from e
        except OSError as e:
            raise DataError(f"{file.url} cannot be downloaded to {folder}: {e}.", code="data.no-download") from e
        paths.append(Path(path))
    return paths
