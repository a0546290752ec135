"""Atomic writing."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med.files import atomic_writer, check_writable, lock_shared, locked, write_text
from tests.helpers.imports import imports, sources


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="half way"), atomic_writer(path) as stream:
        stream.write(b"new")
        raise RuntimeError("half way")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b", "text")
    assert (tmp_path / "a" / "b").read_text() == "text"


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from fedmr_med.models.model_file import write_tensors
from fedmr_med.errors import CheckpointError
path = Path(sys.argv[1])
write_tensors(path, {"format": 2, "w": torch.zeros(10)})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_tensors(path, {"format": 2, "w": torch.zeros(1_000_000)})
except CheckpointError as e:
    print(e)
    sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_a_checkpoint_that_does_not_fit_on_the_disk_leaves_the_old_one(tmp_path: Path) -> None:
    from fedmr_med.models.model_file import read_tensors

    path = tmp_path / "model.pt"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert str(path) in done.stdout
    assert "unchanged" in done.stdout
    assert read_tensors(path)["w"].shape == (10,)
    assert list(tmp_path.iterdir()) == [path]


def test_two_locks_let_two_in_and_the_third_wait(tmp_path: Path) -> None:
    paths = tmp_path / "a" / "0.lock", tmp_path / "a" / "1.lock"
    with locked(*paths, patience=0):
        with locked(*paths, patience=0), pytest.raises(TimeoutError, match="is locked"), locked(*paths, patience=0):
            pass
        with locked(*paths, patience=0):
            pass


def test_readers_share_a_lock_and_keep_a_writer_out(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open("rb") as one, path.open("rb") as other:
        lock_shared(one)
        lock_shared(other)
        with pytest.raises(TimeoutError), locked(path, patience=0):
            pass
    with locked(path, patience=0):
        pass


def test_there_is_one_file_lock() -> None:
    assert {module for module in sources() if "fcntl" in imports(module)} == {"fedmr_med.files"}


def test_a_check_of_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_a_folder_below_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        check_writable(tmp_path / "file" / "folder")
