"""The attacks of the robustness study do what their names say, and the default stops what it is said to stop."""

import pytest

from fedmr_med.lab.studies import poisoning
from fedmr_med.lab.studies.poisoning import CLEAN, Cell, named, run, table
from tests.helpers.errors import raises

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 1, "min_sites": 4})


@pytest.mark.parametrize("attack", ["update x -5", "model x 100", "random model", "model of zeros", "prototypes x 100"])
def test_the_default_leaves_the_attacker_out(attack: str) -> None:
    assert run(attack, {}, seed=0)[1] == 1


def test_the_default_changes_nothing_without_an_attack() -> None:
    assert run(CLEAN, {}, seed=0) == run(CLEAN, {"max_deviation": None}, seed=0)


@pytest.mark.parametrize("attack", [poisoning.FLIPPED, "prototypes exchanged"])
def test_wrong_labels_show_once_the_sites_have_features_in_common(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 2, "min_sites": 4})
    assert run(attack, {}, seed=0)[1] == 1


def test_the_table_has_means_and_costs() -> None:
    cells = [Cell(CLEAN, "default", seed, 0.5, 0) for seed in (0, 1)]
    cells += [Cell("a", "default", seed, 0.4 + seed / 10, 0) for seed in (0, 1)]
    assert table(cells) == [["", "default"], [CLEAN, "50.0"], ["a", "45.0 (-5.0)"]]


def test_names_are_checked() -> None:
    assert named("b, a", {"a": 1, "b": 2}, "rules") == ["b", "a"]
    assert named("", {"a": 1, "b": 2}, "rules") == ["a", "b"]
    with raises("config.unknown-name", "--rules"):
        named("c", {"a": 1, "b": 2}, "rules")
