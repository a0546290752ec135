"""FLamby's preparation of ISIC2019: smaller images under the same light."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from fedmr_med.config import PreparationConfig
from fedmr_med.data.flamby_isic import LESIONS_FILE, PREPARED_FOLDER, RAW_FOLDER, SPLIT_FILE
from fedmr_med.data.images import UnreadableImageError, read_rgb
from fedmr_med.data.preparation import RECORD, jpeg_of
from fedmr_med.data.tables import writing
from fedmr_med.errors import DataError
from fedmr_med.files import atomic_writer, write_text

_CHUNK = 16  # images handed to a process at a time

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PrepareReport:
    """What a preparation did.

    Attributes:
        written, kept: how many were made now, and how many were there from an earlier run.
        failed: images that could not be read, one line each.
    """

    folder: Path
    written: int
    kept: int
    failed: tuple[str, ...]


def prepare_isic(
    source: Path, target: Path, *, edge: int = 224, workers: int = 1, progress: Progress | None = None
) -> PrepareReport:
    """Prepare the raw images of ISIC2019 as FLamby does, into another folder.

    Each image gets a shorter edge of ``edge`` pixels and shades-of-grey colour constancy. A run that was stopped
    resumes where it was. Nothing in ``source`` changes.

    Args:
        source: folder that holds ``ISIC_2019_Training_Input``, and ``train_test_split`` if that is to be copied.
        target: gets ``ISIC_2019_Training_Input_preprocessed``.
        progress: called with the number of images done and the number of all.

    Raises:
        DataError: ``source`` has no images, ``target`` cannot be written or was prepared in another way.
    """
    raw = sorted((source / RAW_FOLDER).glob("*.jpg"))
    if not raw:
        raise DataError(f"{source / RAW_FOLDER} holds no .jpg images.", code="data.empty")
    folder = target / PREPARED_FOLDER
    report = progress or (lambda done, total: None)
    with writing(target):
        _check_record(target, edge)
        missing = [path for path in raw if not _is_current(folder / path.name, path)]
        failed = []
        kept = len(raw) - len(missing)
        report(kept, len(raw))
        for done, error in enumerate(_prepare_all(missing, folder, edge, workers), start=kept + 1):
            if error:
                failed.append(error)
            report(done, len(raw))
        # The split, and the lesions, without which nobody can count the leaked ones.
        for name in (SPLIT_FILE, LESIONS_FILE):
            if (source / name).is_file() and not (target / name).exists():
                with atomic_writer(target / name) as stream, (source / name).open("rb") as original:
                    shutil.copyfileobj(original, stream)
    return PrepareReport(folder, written=len(missing) - len(failed), kept=kept, failed=tuple(failed))


def _prepare_all(paths: list[Path], folder: Path, edge: int, workers: int) -> Iterator[str | None]:
    """Prepare images, in processes of their own if ``workers`` is above 1; yield an error or None for each."""
    prepare = partial(_prepare_one, folder=folder, edge=edge)
    if workers <= 1 or len(paths) <= _CHUNK:
        yield from map(prepare, paths)
        return
    # Ctrl-C reaches every process of a terminal: it is left to the one that started the others.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=signal.signal, initargs=ignore) as pool:
        yield from pool.map(prepare, paths, chunksize=_CHUNK)


def _prepare_one(path: Path, *, folder: Path, edge: int) -> str | None:
    """Prepare one image; return why it cannot be read, or None."""
    try:
        image = read_rgb(path)
    except UnreadableImageError as e:
        return f"{path}: {e}"
    content = jpeg_of(image, PreparationConfig(version=1, edge=edge))
    with atomic_writer(folder / path.name) as stream:
        stream.write(content)
    return None


def _is_current(prepared: Path, raw: Path) -> bool:
    """Return whether an image was prepared after its original was last changed."""
    return prepared.exists() and prepared.stat().st_mtime_ns >= raw.stat().st_mtime_ns


def _check_record(target: Path, edge: int) -> None:
    """Write down how ``target`` is prepared, or refuse to mix two ways in one folder."""
    record = {"edge": edge, "colour_constancy": "shades of grey, power 6, clipped"}
    path = target / RECORD
    if path.exists():
        if path.read_text(encoding="utf-8") != json.dumps(record):
            raise DataError(
                f"{target} was prepared with other settings ({path}); choose another target.",
                code="data.other-settings",
            )
    elif any((target / PREPARED_FOLDER).glob("*.jpg")):
        raise DataError(
            f"{target / PREPARED_FOLDER} was prepared by another program; choose another target.", code="data.foreign"
        )
    else:
        write_text(path, json.dumps(record))
