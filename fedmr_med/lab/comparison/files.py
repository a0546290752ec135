"""How far runs are, in a file of each run's folder: the same for whoever looks, from wherever the runs are done."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROGRESS = "progress.json"


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        done: its completed steps, those before a resumption included.
        new: the steps since the last report.
        note: what else to show, such as the accuracy.
    """

    done: int
    new: int
    note: str = ""


def write_progress(folder: Path, progress: Progress) -> None:
    """Write down how far the run in ``folder`` is; nothing but what people see depends on it."""
    path = folder / PROGRESS
    draft = path.with_suffix(".tmp")
    with suppress(OSError):  # a full disk is for the run's results to tell
        draft.write_text(json.dumps({"done": progress.done, "note": progress.note}), encoding="utf-8")
        draft.replace(path)


def read_progress(folder: Path) -> tuple[int, str]:
    """Return the completed steps of the run in ``folder`` and its note; 0 if it has not begun."""
    try:
        content = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        return int(content["done"]), str(content["note"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


class ProgressFiles:
    """Tells what has changed in the progress of runs.

    Args:
        names: of the runs.
        folder: holds one folder per run.
        on_progress: called with the number of a run and how far it is.
    """

    def __init__(self, names: Sequence[str], folder: Path, on_progress: Callable[[int, Progress], None]):
        self._folders = [folder / name for name in names]
        self._on_progress = on_progress
        self._seen = [read_progress(own) for own in self._folders]

    def look(self, numbers: Sequence[int]) -> None:
        """Read the files of some runs."""
        for number in numbers:
            done, note = read_progress(self._folders[number])
            before, _ = self._seen[number]
            if (done, note) != self._seen[number]:
                self._seen[number] = done, note
                self._on_progress(number, Progress(done, max(done - before, 0), note))

    def ended(self, number: int, steps: int) -> None:
        """Tell that a run is over, even if it stopped before its last step."""
        done, note = self._seen[number]
        if done < steps:
            self._seen[number] = steps, note
            self._on_progress(number, Progress(steps, 0, note))
