"""Parts by name: of this package, and of packages that are installed beside it."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med import methods, models
from fedmr_med.config import MethodConfig
from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.base import Counts, Metric
from fedmr_med.registry import PLUGINS_VARIABLE, Registry
from tests.helpers.errors import raises
from tests.helpers.packages import write_package

GROUP = "fedmr_med.fruits"
CODE = """
import sys

sys.fruits_loaded = getattr(sys, "fruits_loaded", 0) + 1
pear = "a pear"
number = 3
"""


@pytest.fixture
def fruits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """A registry with an apple; an installed package has a pear, and two things that are no good."""
    entries = {"pear": "fruit_salad:pear", "number": "fruit_salad:number", "lost": "fruit_salad:lost"}
    write_package(tmp_path, "fruit-salad", {"fruit_salad": CODE}, {GROUP: entries})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "fruits_loaded", 0, raising=False)
    monkeypatch.delitem(sys.modules, "fruit_salad", raising=False)
    registry = Registry[str]("fruit", group=GROUP, fits=lambda name, item: isinstance(item, str))
    registry.add("apple", "an apple")
    return registry


def loaded() -> int:
    return int(sys.fruits_loaded)  # type: ignore[attr-defined]


def test_own_parts_come_first_in_the_order_of_their_registration(fruits: Registry[str]) -> None:
    fruits.add("Quince", "a quince")
    assert fruits.names() == tuple(fruits) == ("apple", "Quince", "lost", "number", "pear")
    assert "pear" in fruits
    assert "plum" not in fruits


def test_another_packages_code_runs_when_it_is_asked_for_and_not_before(fruits: Registry[str]) -> None:
    assert fruits.get("apple") == "an apple"
    assert "pear" in fruits.names()
    assert loaded() == 0
    assert fruits.get("pear") == fruits.get("pear") == "a pear"
    assert loaded() == 1


def test_an_unknown_name_gets_the_names_there_are_and_the_nearest(fruits: Registry[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"^--fruit: 'aple' is not one of apple, lost, number, pear\. Did you mean apple"
    ):
        fruits.get("aple", "--fruit")
    with pytest.raises(ConfigError, match=r"^fruit: 'xyz' is not one of apple, lost, number, pear\.$"):
        fruits.get("xyz")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("lost", ("registry.does-not-load", "lost")),
        ("number", ("registry.wrong-kind", "number")),
    ],
)
def test_a_package_that_is_no_good_is_named(name: str, fault: tuple[str, ...], fruits: Registry[str]) -> None:
    with raises(*fault):
        fruits.get(name)
    assert fruits.get("apple") == "an apple"


def test_a_name_is_taken_once(fruits: Registry[str], tmp_path: Path) -> None:
    with raises("registry.name-taken", "apple"):
        fruits.add("apple", "another")
    write_package(tmp_path, "worm", {"worm": "apple = 'hollow'"}, {GROUP: {"apple": "worm:apple"}})
    assert fruits.get("apple") == "an apple"
    with raises("registry.name-taken", "apple"):
        fruits.names()


def test_two_packages_with_one_name_are_refused(fruits: Registry[str], tmp_path: Path) -> None:
    write_package(tmp_path, "other-salad", {"other_salad": "pear = 'another'"}, {GROUP: {"pear": "other_salad:pear"}})
    with raises("registry.name-taken", "pear"):
        fruits.get("pear")


def test_a_part_may_be_defined_again_and_may_have_an_entry_point_too(fruits: Registry[str]) -> None:
    fruits.add("pear", "a pear")
    assert "pear" in fruits.names()

    classes = Registry[type]("class")
    for _ in range(2):

        class Cell:
            pass

        classes.add("cell", Cell)
    assert classes.get("cell") is Cell


def test_a_record_made_again_replaces_the_old_one_and_another_does_not() -> None:
    records = Registry[Metric]("metric")
    for _ in range(2):

        def zero(counts: Counts) -> float:
            return 0.0

        again = records.add("zero", Metric("zero", "nothing", zero))
    assert records.get("zero") is again
    with raises("registry.name-taken", "zero"):
        records.add("zero", Metric("zero", "nothing", abs))
    with raises("registry.name-taken", "zero"):
        records.add("zero", Metric("zero", "something", zero))


def test_misspelt_methods_and_networks_get_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"method\.name: 'fedmrs' is not one of fedavg.*Did you mean fedmr\?"):
        methods.build(MethodConfig(name="fedmrs"))
    with pytest.raises(ConfigError, match=r"model\.name: 'resnet' is not one of.*Did you mean resnet18\?"):
        models.build("resnet", num_classes=2)


@pytest.mark.slow
def test_a_file_of_ones_own_adds_a_part_in_this_process_and_in_those_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "slow_and_steady.py"
    plugin.write_text(
        "from fedmr_med.methods.base import Method, register\n\n\n"
        "@register\nclass Steady(Method):\n    name = 'steady'\n"
    )
    monkeypatch.setenv(PLUGINS_VARIABLE, str(plugin))
    child = (
        "import fedmr_med.methods; from fedmr_med.methods.base import METHODS; "
        "print('steady' in METHODS, METHODS.get('steady').name)"
    )
    said = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "steady"]


def test_a_file_that_does_not_load_is_named_and_no_file_is_run_for_a_part_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "broken_plugin.py"
    plugin.write_text("1 / 0")
    monkeypatch.setenv(PLUGINS_VARIABLE, str(plugin))
    registry = Registry[str]("fruit")
    registry.add("apple", "an apple")
    assert registry.get("apple") == "an apple"
    with raises("registry.does-not-load", "--plugin"):
        registry.get("pear")
