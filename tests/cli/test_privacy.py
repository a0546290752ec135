"""``fedmr-med privacy``: figures for a budget, and what a sum costs, as a person or a script asks for them."""

import json
from typing import Any

import pytest

from fedmr_med.privacy.accountant import epsilon
from tests.helpers.command_line import call, run
from tests.helpers.errors import printed_fault


def test_the_noise_of_a_budget_is_printed_for_people_and_scripts() -> None:
    words = ["privacy", "noise", "--epsilon", "4", "--releases", "3"]
    found = json.loads(call(*words, "--json").stdout)["noise"]
    assert float(call(*words).stdout) == pytest.approx(found, abs=1e-3)
    assert epsilon([found] * 3) <= 4


def test_the_cost_of_sums_is_one_row_for_each_size_that_can_be_opened() -> None:
    done = call("privacy", "sums", "--sites", "3,6", "--dropped", "0,0.3", "--numbers", "10", "--json")
    assert [(row["sites"], row["dropped"]) for row in json.loads(done.stdout)] == [(3, 0), (6, 0), (6, 2)]
    assert "A sum of 3 sites cannot be opened without 1" in done.stderr


@pytest.mark.parametrize("words", [("--sites", "three"), ("--dropped", "-0.3"), ("--dropped", "some")])
def test_numbers_of_sites_and_shares_that_are_none_are_named(
    words: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(monkeypatch, "privacy", "sums", *words, "--json") == 2
    assert printed_fault(capsys) == ("config.value", words[0])
