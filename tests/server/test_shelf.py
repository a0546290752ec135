import pytest

from fedmr_med.server.shelf import Shelf


def test_what_does_not_fit_in_memory_is_read_back_equal() -> None:
    shelf: Shelf[list[int]] = Shelf(2)
    for number in range(5):
        shelf.add(f"site-{number}", [number] * 3)
    assert dict(shelf) == {f"site-{number}": [number] * 3 for number in range(5)}
    assert len(shelf) == 5
    assert "site-4" in shelf
    assert "site-5" not in shelf
    assert len(shelf._values) == 2
    with pytest.raises(KeyError):
        shelf.add("site-4", [])
    with pytest.raises(KeyError):
        shelf["site-5"]
