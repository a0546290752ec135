import pickle

import pytest

from fedmr_med import refusals
from fedmr_med.errors import ConfigError, WireError
from fedmr_med.refusals import FloorError
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
