"""A journal shows when a line was changed, removed or put in between, and survives a torn write."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedmr_med.files import journal
from tests.helpers.errors import raises


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of four entries."""
    path = tmp_path / "acts.jsonl"
    for number in range(4):
        journal.append(path, {"number": number, "text": "ä" * 5000 * number})
    return path


def test_entries_are_read_back_in_order(path: Path) -> None:
    found = journal.read(path)
    assert [entry["number"] for entry in found.entries] == [0, 1, 2, 3]
    assert found.problems == ()
    assert len(found.head) == 64


def test_entries_that_are_added_at_once_are_lines_like_others(path: Path, tmp_path: Path) -> None:
    journal.append(tmp_path / "at_once.jsonl", *journal.read(path).entries)
    assert (tmp_path / "at_once.jsonl").read_bytes() == path.read_bytes()
    journal.append(path)
    assert (tmp_path / "at_once.jsonl").read_bytes() == path.read_bytes(), "no entry is no line"


def test_an_empty_journal_is_intact_and_has_no_entry(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "none.jsonl").entries == ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [lines[0], lines[1].replace(b'"number": 1', b'"number": 9'), *lines[2:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[2], lines[1], lines[3]],
        lambda lines: [*lines[:2], b"{}", *lines[2:]],
        lambda lines: [*lines[:2], b"garbage", *lines[2:]],
        lambda lines: [*lines, b'{"number": 4, "previous": "0000"}'],
        lambda lines: [*lines[:3], lines[3][:-20]],
        lambda lines: [*lines[:3], b"garbage"],
        lambda lines: [*lines[:3], b"[]"],
        lambda lines: [*lines, b""],
    ],
    ids=[
        *("changed", "removed", "first removed", "swapped", "put in", "garbage put in", "added by hand"),
        *("last cut", "last overwritten", "last is no entry", "empty line added"),
    ],
)
def test_tampering_shows(path: Path, spoil) -> None:
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join(spoil(lines)) + b"\n")
    assert journal.read(path).problems
    journal.append(path, {"number": 5})
    assert journal.read(path).problems, "the next line must not make it good"


def test_a_shortened_journal_shows_against_a_head_that_was_written_down(path: Path) -> None:
    head = journal.read(path).head
    assert journal.read(path, known_head=head).problems == ()
    journal.append(path, {"number": 4})
    assert journal.read(path, known_head=head).problems == (), "it has only grown since"
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:3]) + b"\n")
    assert journal.read(path).problems == ()
    assert "does not hold" in journal.read(path, known_head=head).problems[0]


def test_a_line_torn_by_a_power_cut_is_named_and_the_journal_goes_on(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    assert (journal.read(path).torn, journal.read(path).problems) == ((4,), ())
    journal.append(path, {"number": 4})
    found = journal.read(path)
    assert [entry["number"] for entry in found.entries] == [0, 1, 2, 4]
    assert (found.torn, found.problems) == ((4,), ())


@pytest.mark.parametrize("cut", [1, 2, 30, 10**4])
def test_a_kill_at_any_byte_of_a_line_is_no_tampering(path: Path, cut: int) -> None:
    before = path.read_bytes()
    journal.append(path, {"number": 4, "text": "b" * 2 * 10**4})
    path.write_bytes(path.read_bytes()[:-cut])
    whole = cut == 1  # the newline alone is missing
    for number in (5, 6):
        found = journal.read(path)
        assert (found.torn, found.problems) == (() if whole else (5,), ())
        journal.append(path, {"number": number})
    assert [entry["number"] for entry in journal.read(path).entries] == [0, 1, 2, 3, *([4] if whole else []), 5, 6]
    assert path.read_bytes().startswith(before)
    assert all(entry.keys() == {"number", "text"} for entry in journal.read(path).entries[:4])


def test_a_torn_line_that_is_changed_later_shows(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    journal.append(path, {"number": 4})
    path.write_bytes(path.read_bytes().replace(b'"number": 3', b'"number": 8'))
    assert journal.read(path).problems


def test_writers_at_once_keep_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "acts.jsonl"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(journal.append, [path] * 20, [{"number": number} for number in range(20)]))
    found = journal.read(path)
    assert sorted(entry["number"] for entry in found.entries) == list(range(20))
    assert found.problems == ()


def test_only_the_owner_can_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    with raises("file.unreadable"):
        journal.read(tmp_path)
    with pytest.raises(OSError, match="directory"):
        journal.append(tmp_path, {})
