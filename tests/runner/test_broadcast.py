"""Messages written once for many readers."""

from pathlib import Path

import numpy as np

from fedmr_med.runner.broadcast import read_message, write_message
from fedmr_med.wire.codec import Message


def test_what_is_read_equals_what_was_written_and_is_the_readers_own(tmp_path: Path) -> None:
    arrays = {
        "weight": np.arange(7, dtype=np.float32).reshape(1, 7),
        "counter": np.array(5),
        "turned": np.arange(6.0).reshape(2, 3).T,
        "part": np.arange(10)[::3],
        "none": np.empty((0, 4)),
    }
    message = Message({"model": arrays, "method": {}}, {"round": 3})
    write_message(tmp_path / "a" / "task", message)
    first, second = (read_message(tmp_path / "a" / "task") for _ in range(2))
    (tmp_path / "a" / "task").unlink()
    assert first.meta == message.meta
    assert first.parts.keys() == message.parts.keys()
    for name, array in arrays.items():
        read = first.parts["model"][name]
        assert np.array_equal(read, array)
        assert (read.dtype, read.flags.aligned) == (array.dtype, True)
    first.parts["model"]["weight"][:] = 0
    assert np.array_equal(second.parts["model"]["weight"], arrays["weight"]), "nobody sees another reader's changes"
