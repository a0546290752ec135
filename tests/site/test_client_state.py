"""The store of a site's own state: which round counts, and that two processes never share it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.errors import CheckpointError
from fedmr_med.site.client_state import ClientStateStore
from tests.helpers.errors import raises


@pytest.fixture
def store(tmp_path: Path) -> ClientStateStore:
    return ClientStateStore(tmp_path / "chain" / "feddyn", patience=0.3)


def state(value: float) -> dict[str, np.ndarray]:
    return {"h.weight": np.full((2, 3), value, dtype=np.float32), "n": np.asarray(value)}


def files(store: ClientStateStore) -> list[str]:
    return sorted(path.name for path in store.folder.glob("*.npz"))


def test_nothing_is_there_before_the_first_accepted_round(store: ClientStateStore) -> None:
    assert store.load(None) == {}
    store.save(0, state(1), None)
    assert store.load(None) == {}, "a round that was never accepted leaves nothing"
    assert files(store) == []


def test_arrays_come_back_as_they_were(store: ClientStateStore) -> None:
    store.save(0, state(1.5), None)
    kept = store.load(0)
    assert kept["h.weight"].dtype == np.float32
    assert np.array_equal(kept["h.weight"], np.full((2, 3), 1.5))
    assert kept["n"].shape == ()


def test_the_accepted_round_decides(store: ClientStateStore) -> None:
    store.save(0, state(0), None)
    store.save(1, state(1), 0)
    assert files(store) == ["round-000000.npz", "round-000001.npz"]
    assert store.load(0)["n"] == 0, "round 1 was refused"
    assert files(store) == ["round-000000.npz"]
    store.save(1, state(11), 0)
    store.save(4, state(4), 1)
    assert store.load(1)["n"] == 11
    store.save(4, state(44), 1)
    assert store.load(4)["n"] == 44


def test_at_most_two_rounds_are_kept(store: ClientStateStore) -> None:
    for number in range(5):
        store.save(number, state(number), number - 1 if number else None)
        assert len(files(store)) <= 2


def test_lost_state_is_an_error_that_says_what_to_do(store: ClientStateStore) -> None:
    store.save(0, state(0), None)
    with pytest.raises(CheckpointError, match=r"after round 4, but .*round-000003\.npz is missing.*new chain"):
        store.load(3)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not really a zip", b"\x00" * 100])
def test_damaged_state_is_an_error(store: ClientStateStore, damage: bytes) -> None:
    store.save(0, state(0), None)
    (store.folder / "round-000000.npz").write_bytes(damage)
    with raises("state.lost"):
        store.load(0)


def test_a_truncated_or_flipped_file_is_an_error(store: ClientStateStore) -> None:
    store.save(0, state(0), None)
    path = store.folder / "round-000000.npz"
    content = path.read_bytes()
    for damaged in (content[:-40], content[:150] + bytes([content[150] ^ 1]) + content[151:]):
        path.write_bytes(damaged)
        with raises("state.lost"):
            store.load(0)


def test_what_a_killed_process_left_half_written_is_removed(store: ClientStateStore) -> None:
    store.save(0, state(0), None)
    (store.folder / ".round-000001.npz.abc.tmp").write_bytes(b"half")
    store.load(0)
    assert sorted(path.name for path in store.folder.iterdir()) == ["round-000000.npz"]


HOLD = """
import sys
from pathlib import Path
from fedmr_med.site.client_state import ClientStateStore
with ClientStateStore(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    sys.stdin.readline()
"""


def test_a_process_that_outlives_its_job_keeps_others_out_until_it_ends(store: ClientStateStore) -> None:
    arguments = [sys.executable, "-c", HOLD, str(store.folder)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        with raises("state.in-use"), store.locked():
            pass
        other.kill()
    with store.locked():
        pass


def test_the_lock_is_free_again_after_an_error(store: ClientStateStore) -> None:
    with pytest.raises(TimeoutError, match="a slow disk"), store.locked():
        raise TimeoutError("a slow disk")
    with store.locked():
        store.save(0, state(0), None)
    with store.locked():
        assert store.load(0)["n"] == 0
