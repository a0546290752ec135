"""The journal of a model's use: a line per image that it answered for, on the hospital's own disk and nowhere else.

A line holds the SHA-256 of the model's file and of the image's, the answer, the probabilities, the version of the
toolkit and the time; no name of a file, a folder or a patient. Who has an image can find its line, nobody else. The
lines are chained (:mod:`fedmr_med.files.journal`), so one that is changed or taken out shows.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedmr_med.errors import ConfigError, DataError
from fedmr_med.evaluation.usage import GROUPS, Summary, Told, Usage, group_of
from fedmr_med.files import journal, private_files, state_folder
from fedmr_med.inference.predict import Prediction
from fedmr_med.models.model_file import sha256_of
from fedmr_med.privacy.mechanisms import without_small_parts
from fedmr_med.version import __version__

JOURNAL_FILE = "use.jsonl"
Use = Literal["predict", "evaluate"]
_DIGITS = 6  # of probabilities, as in a table of predictions


@dataclass(frozen=True)
class Period:
    """Which lines of a journal are meant: of one model, in one use, from the first day to the last, in UTC."""

    model: str
    use: Use
    first: date
    last: date

    def has(self, line: dict[str, Any]) -> bool:
        """Whether a line is one of them."""
        day = str(line.get("time"))[:10]
        inside = self.first.isoformat() <= day <= self.last.isoformat()
        return inside and (line.get("model"), line.get("use")) == (self.model, self.use)


@dataclass(frozen=True)
class UseJournal:
    """The journal in a file."""

    path: Path

    @classmethod
    def open(cls, path: Path | None = None) -> "UseJournal":
        """Return the journal in a file, by default in this account's state folder, once it is sure it can be written.

        Raises:
            ConfigError: it cannot.
        """
        opened = cls.at(path)
        opened._append()
        return opened

    @classmethod
    def at(cls, path: Path | None = None) -> "UseJournal":
        """Return the journal in a file, by default in this account's state folder."""
        return cls(path or state_folder() / JOURNAL_FILE)

    def add(
        self, use: Use, model: Path, root: Path, class_names: tuple[str, ...], predictions: Iterable[Prediction]
    ) -> None:
        """Write a line for each image that the model answered for; those that cannot be read have none.

        Args:
            use: the command.
            model: the model's file.
            root: folder of the images.
            class_names: of the model.
            predictions: its answers.

        Raises:
            ConfigError: the journal cannot be written.
        """
        now, digest = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), sha256_of(model)
        lines = [
            {
                "time": now,
                "use": use,
                "version": __version__,
                "model": digest,
                "image": sha256_of(root / prediction.image),
                "answer": class_names[int(prediction.probabilities.argmax())],
                "probabilities": prediction.probabilities.round(_DIGITS).tolist(),
            }
            for prediction in predictions
            if not prediction.error
        ]
        self._append(*lines)

    def summary(
        self, period: Period, class_names: tuple[str, ...], site: str, *, least: int, head: str | None = None
    ) -> tuple[Summary, str]:
        """Count the images of a period, each once however often it was asked for: its last line counts.

        Returns the counts, and the head of the journal to note.

        Args:
            period: which lines.
            class_names: of the model.
            site: the hospital's name.
            least: the smallest number that is told; smaller ones are held back, and the smallest others with them until
                nobody can subtract.
            head: of the journal, as noted earlier: its line must still be there.

        Raises:
            PolicyError: the journal was changed.
            DataError: there are fewer images than ``least``.
        """
        known = journal.sound(self.path, "nothing is counted in it", known_head=head)
        images = {line["image"]: line for line in known.entries if period.has(line)}
        if len(images) < max(1, least):
            raise DataError(
                f"{self.path} has {len(images)} images that this model answered for in `{period.use}` from "
                f"{period.first} to {period.last}; a summary tells of {max(1, least)} and more.",
                code="data.empty",
                key="--since",
            )

        def told(categories: tuple[str, ...], counted: Iterable[str]) -> dict[str, Told]:
            counts = Counter(counted)
            exact = np.array([counts[name] for name in categories], dtype=np.int64)
            left = without_small_parts(exact, len(images), least).tolist()
            return {name: n or (0 if least <= 1 else None) for name, n in zip(categories, left, strict=True)}

        usage = Usage(
            periods=((period.first, period.last),),
            images=len(images),
            answers=told(class_names, (line["answer"] for line in images.values())),
            confidence=told(GROUPS, (group_of(max(line["probabilities"])) for line in images.values())),
        )
        return Summary(model=period.model, usage={site: usage}), known.head

    def _append(self, *entries: dict[str, Any]) -> None:
        try:
            with private_files():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                journal.append(self.path, *entries)
        except OSError as e:
            raise ConfigError(
                f"The journal {self.path} cannot be written ({e.strerror or e}), so nothing is answered. --journal "
                "names another file, --no-journal keeps none.",
                code="file.not-writable",
                key="--journal",
            ) from e
