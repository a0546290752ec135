import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedmr_med
from fedmr_med.errors import ConfigError, WireError
from fedmr_med.privacy import refusals
from fedmr_med.privacy.refusals import FLOORS, FloorError
from tests.helpers.errors import raises


def test_an_error_keeps_its_code_and_key_on_the_way_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("why", code="config.value", key="train.lr")))
    assert (type(error), str(error), error.code, error.key) == (ConfigError, "why", "config.value", "train.lr")
    floor = pickle.loads(pickle.dumps(FloorError("lr", "why")))
    assert (str(floor), refusals.code_of(floor)) == ("why", refusals.floor_code("lr"))


def test_a_place_before_the_sentence_changes_nothing_else() -> None:
    error = WireError("NaN", code="wire.not-finite", key="model")
    placed = error.at("bcn")
    assert (type(placed), str(placed), placed.code, placed.key) == (WireError, "bcn: NaN", "wire.not-finite", "model")
    assert str(error) == "NaN"


def test_the_helper_fails_for_another_code_or_key() -> None:
    for code, key in (("config.conflict", None), ("config.value", "train.wd")):
        with pytest.raises(AssertionError, match="why"), raises(code, key):
            raise ConfigError("why", code="config.value", key="train.lr")


FORM = re.compile(r"[a-z]+\.[a-z]+(-[a-z]+)*")


def codes() -> Iterator[tuple[str, str]]:
    """Yield every code that the package gives an error, with its place."""
    for path in Path(fedmr_med.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for argument in call.keywords if isinstance(call, ast.Call) else ():
                if argument.arg == "code" and isinstance(argument.value, ast.Constant):
                    yield argument.value.value, f"{path}:{argument.lineno}"


def test_a_code_is_an_area_and_a_fault() -> None:
    found = dict(codes())
    assert len(found) > 50
    assert {code: place for code, place in found.items() if not FORM.fullmatch(code)} == {}
    assert all(FORM.fullmatch(FloorError(floor, "why").code) for floor in FLOORS)
