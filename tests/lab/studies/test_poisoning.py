"""The attacks of the robustness study do what their names say, and the default stops what it is said to stop."""

import pytest

from fedmr_med.lab.studies import poisoning
from fedmr_med.lab.studies.poisoning import CLEAN, Cell, run, table
from tests.helpers.command_line import run as command
from tests.helpers.errors import printed_fault

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 1, "min_sites": 4})


@pytest.mark.parametrize(
    "attack",
    [
        *("update x -5", "random model", "prototypes x 100"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("model x 100", "model of zeros")),
    ],
)
def test_the_default_leaves_the_attacker_out(attack: str) -> None:
    assert run(attack, {}, seed=0)[1] == 1


def test_the_default_changes_nothing_without_an_attack() -> None:
    assert run(CLEAN, {}, seed=0) == run(CLEAN, {"max_deviation": None}, seed=0)


@pytest.mark.parametrize("attack", [poisoning.FLIPPED, "prototypes exchanged"])
def test_wrong_labels_show_once_the_sites_have_features_in_common(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 2, "min_sites": 4})
    assert run(attack, {}, seed=0)[1] == 1


def test_updates_turned_round_are_left_out_whoever_sends_them() -> None:
    assert run("update x -1.3", {}, seed=0)[1] == 1
    assert run("update x -1.3 by two sites", {}, seed=0)[1] == 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("attack", "points"),
    [
        ("update x -1.3", 5),
        ("update x -1.3 by two sites", 15),
        ("labels flipped behind right prototypes", 7),
        ("labels flipped behind right prototypes by two sites", 15),
        ("melanomas as nevi with 10^6 images claimed", 17),
        ("labels flipped without prototypes", 18),
    ],
)
def test_attacks_cost_what_the_page_says(attack: str, points: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 5, "min_sites": 4})
    assert 100 * (run(CLEAN, {}, seed=0)[0] - run(attack, {}, seed=0)[0]) <= points


def test_the_table_has_means_and_costs() -> None:
    cells = [Cell(CLEAN, "default", seed, 0.5, 0) for seed in (0, 1)]
    cells += [Cell("a", "default", seed, 0.4 + seed / 10, 0) for seed in (0, 1)]
    assert table(cells) == [["", "default"], [CLEAN, "50.0"], ["a", "45.0 (-5.0)"]]


def test_names_are_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--attacks", "--rules"):
        assert command(monkeypatch, "robustness", option, "nothing", "--json") == 2
        assert printed_fault(capsys) == ("config.unknown-name", option)
