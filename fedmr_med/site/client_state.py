"""What a site keeps for itself from round to round."""

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from fedmr_med.arrays import Arrays
from fedmr_med.errors import CheckpointError
from fedmr_med.files import atomic_writer, locked

CLIENT_STATE = "client_state"
"""Folder of what a site keeps, beside its other files; in a federation on one machine, of what all sites keep."""

LOCK_FILE, CHAINS = "lock", "chains"


def chain_folder(state_folder: Path, chain: str) -> Path:
    """Return where a site keeps what belongs to one chain, apart from its own files, whatever the chain is called.

    The folder of a chain that began when it lay among those files is moved.
    """
    folder, before = state_folder / CHAINS / chain, state_folder / chain
    if before.is_dir() and chain != CHAINS and not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        before.rename(folder)
    return folder


class ClientStateStore:
    """A site's own state of a method (MOON's previous model, FedDyn's h), one file per round.

    Processes come and go, and a round may be repeated or refused. So the state of each round is a file of its
    own, and the server's word on which round of this site it last accepted decides which file counts.

    Args:
        folder: one per chain and method.
        patience: seconds to wait for another process that holds the folder.
    """

    def __init__(self, folder: Path, patience: float = 60):
        self.folder = folder
        self.patience = patience

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one local round, from loading its state to saving the next.

        The process of an earlier job can outlive that job and still be training for the same chain. The lock
        goes with the process that holds it, however it ends.

        Raises:
            CheckpointError: another process does not let go of it.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder / LOCK_FILE, patience=self.patience))
            except TimeoutError as e:
                raise CheckpointError(
                    f"The client state {self.folder} is in use by another process of this site, perhaps of an "
                    "earlier job. Wait until that has ended, or end it.",
                    code="state.in-use",
                ) from e
            yield

    def load(self, accepted: int | None) -> Arrays:
        """Return the state after the accepted round, the last in which this site's reply counted; None is never.

        What other rounds left is dropped. Only for methods that keep state: theirs is there after every accepted round.

        Raises:
            CheckpointError: the file of that round is missing or cannot be read.
        """
        for path in self.folder.glob(".round-*.tmp"):
            path.unlink()  # from a process that was killed while it wrote
        for path, round_number in self._rounds():
            if accepted is None or round_number > accepted:
                path.unlink()
        if accepted is None:
            return {}
        path = self._path(accepted)
        try:
            with np.load(path, allow_pickle=False) as content:
                return dict(content)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
            problem = "is missing" if isinstance(e, FileNotFoundError) else "cannot be read"
            raise CheckpointError(
                f"The server counts on this site's state after round {accepted + 1}, but {path} {problem}. "
                f"Restore {self.folder} from a backup, or start a new chain.",
                code="state.lost",
            ) from e

    def save(self, round_number: int, state: Arrays, accepted: int | None) -> None:
        """Write the state after a round; the one of the accepted round stays, in case this one is refused."""
        with atomic_writer(self._path(round_number)) as stream:
            np.savez(stream, allow_pickle=False, **state)
        for path, number in self._rounds():
            if number not in (round_number, accepted):
                path.unlink()

    def _rounds(self) -> list[tuple[Path, int]]:
        return [(path, int(path.stem.removeprefix("round-"))) for path in self.folder.glob("round-*.npz")]

    def _path(self, round_number: int) -> Path:
        return self.folder / f"round-{round_number:06d}.npz"
