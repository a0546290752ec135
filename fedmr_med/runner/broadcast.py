"""A message written once and read by many processes, whose memory they share."""

import mmap
import pickle
from pathlib import Path

from fedmr_med.wire.codec import Message

_ALIGNMENT = 64


def write_message(path: Path, message: Message) -> None:
    """Write a message so that :func:`read_message` has to copy none of its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    structure = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        pickle.dump((structure, [array.nbytes for array in arrays]), stream)
        for array in arrays:
            stream.write(b"\0" * (-stream.tell() % _ALIGNMENT))
            stream.write(array)


def read_message(path: Path) -> Message:
    """Return a message of this machine's own processes.

    Its arrays lie in the pages of the file, which all readers share; a page that one of them changes becomes its own.
    They stay when the file is removed.
    """
    with path.open("rb") as stream:
        structure, sizes = pickle.load(stream)
        start = stream.tell()
        pages = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY))
    buffers = []
    for size in sizes:
        start += -start % _ALIGNMENT
        buffers.append(pages[start : start + size])
        start += size
    message: Message = pickle.loads(structure, buffers=buffers)
    return message
