"""Shakespeare as LEAF prepares it: each client is a speaker, each item 80 characters and the one that follows.

LEAF's scripts (``preprocess.sh -s niid -t sample``) write ``train/*.json`` and ``test/*.json``:
``{"users": [...], "user_data": {user: {"x": [80 characters, ...], "y": [character, ...]}}}``.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.data.base import Fold, Partitioned
from fedmr_med.data.datasets.base import Dataset, Protocol
from fedmr_med.errors import ConfigError, DataError
from fedmr_med.seeding import numpy_generator

# LEAF's 80 characters. Any other one in a text has the index that follows; it never is a label.
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
OTHER = len(CHARACTERS)
TEXT_LENGTH = 80

_INDEX = np.full(256, OTHER, dtype=np.uint8)
_INDEX[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))


@dataclass(frozen=True)
class Speaker:
    """One speaker's samples, and a line for each that is left out because its next character is none of LEAF's."""

    fold: Fold
    skipped: tuple[str, ...]


def encode(text: str) -> npt.NDArray[np.uint8]:
    """Return the index of each character, (len(text),)."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return np.where(points < 256, _INDEX[np.minimum(points, 255)], np.uint8(OTHER))


def read_speakers(folder: Path) -> dict[str, Speaker]:
    """Read all JSON files of LEAF's ``train`` or ``test`` folder.

    Returns:
        Speakers by name. Items are (n, 80) uint8 character indices, labels the index of the next character.

    Raises:
        DataError: there are no files, or one is not in LEAF's form; the message names it.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        why = f"{folder} holds no JSON files; LEAF's preprocess.sh writes them for Shakespeare."
        raise DataError(why, code="data.missing")
    speakers: dict[str, Speaker] = {}
    for path in paths:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            data = {user: content["user_data"][user] for user in content["users"]}
            samples = {user: (data[user]["x"], data[user]["y"]) for user in data}
        except (OSError, ValueError, KeyError, TypeError) as e:
            why = f"{path} is damaged or not LEAF's JSON ({type(e).__name__}: {e})."
            raise DataError(why, code="data.damaged") from e
        for user, (texts, following) in samples.items():
            if user in speakers:
                raise DataError(f"{path} holds speaker {user!r} a second time.", code="data.duplicate")
            speakers[user] = _speaker(texts, following, f"{path}, speaker {user!r}")
    return speakers


def read_clients(root: Path, clients: int, seed: int) -> Partitioned:
    """Draw ``clients`` speakers; return their training data and their joint test set.

    Only speakers with at least 2 training samples and a test sample are drawn.

    Raises:
        ConfigError: there are fewer speakers than clients.
        DataError: files are missing or damaged.
    """
    train, test = read_speakers(root / "train"), read_speakers(root / "test")
    usable = sorted(user for user in train.keys() & test.keys() if len(train[user].fold) >= 2 and len(test[user].fold))
    if clients > len(usable):
        why = f"{root} has {len(usable)} speakers with training and test data, too few for {clients} clients."
        raise ConfigError(why, code="data.too-few")
    drawn = numpy_generator(seed, "partition").permutation(len(usable))[:clients]
    users = [usable[number] for number in sorted(drawn)]
    folds = [test[user].fold for user in users]
    joint = Fold(np.concatenate([f.items for f in folds]), np.concatenate([f.labels for f in folds]))
    speakers = [train[user] for user in users]
    return Partitioned(tuple(s.fold for s in speakers), tuple(s.skipped for s in speakers), joint)


def _speaker(texts: Any, following: Any, where: str) -> Speaker:
    def damaged(problem: str, key: str) -> DataError:
        return DataError(f"{where}: {problem}.", code="data.damaged", key=key)

    if not (isinstance(texts, list) and isinstance(following, list)):
        raise damaged("x and y must be lists", "x, y")
    if len(texts) != len(following):
        raise damaged(f"{len(texts)} texts but {len(following)} next characters", "x, y")
    if any(not isinstance(text, str) or len(text) != TEXT_LENGTH for text in texts):
        raise damaged(f"every x must be a text of {TEXT_LENGTH} characters", "x")
    if any(not isinstance(character, str) or len(character) != 1 for character in following):
        raise damaged("every y must be one character", "y")
    items = encode("".join(texts)).reshape(-1, TEXT_LENGTH)
    labels = encode("".join(following)).astype(np.int64)
    known = labels != OTHER
    skipped = tuple(f"{where}: text {row} is followed by {following[row]!r}" for row in np.flatnonzero(~known).tolist())
    return Speaker(Fold(items[known], labels[known]), skipped)


SHAKESPEARE = Dataset(
    name="shakespeare",
    # Names have no punctuation: a mark is named by its code point.
    class_names=tuple(c if c.isalnum() else f"U+{ord(c):04X}" for c in CHARACTERS),
    image_size=TEXT_LENGTH,
    channels=1,
    kind="texts",
    read_clients=read_clients,
    content="LEAF's train/ and test/",
    about="Shakespeare is made by the LEAF scripts.",
    # The paper says neither which network it uses nor for how many rounds.
    protocol=Protocol("char_lstm", "none", 100, clients=50),
)
