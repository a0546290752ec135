"""A little fuzzing with every test run; ``python -m tests.helpers.fuzz`` does more."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.fuzz import exchanges, files, replies


@pytest.mark.slow
def test_no_mutated_reply_stops_the_server_or_spoils_its_state(tmp_path: Path) -> None:
    outcome = replies.fuzz(400, tmp_path, seed=1)
    assert outcome["replies"] == 400
    assert outcome["refused"] > 200, "the mutants are really bad"
    assert outcome["accepted"] > 10, "and some of them are harmless"


def test_no_mutated_message_of_another_exchange_opens_a_total_or_passes_for_the_jobs_weights(tmp_path: Path) -> None:
    outcome = exchanges.fuzz(240, tmp_path, seed=1)
    kinds = ("questions refused", "totals opened", "totals not opened", "statistics taken", "statistics refused")
    assert all(outcome[kind] for kind in (*kinds, "weights taken", "weights refused")), outcome


@pytest.mark.slow
def test_no_mutated_file_ends_in_anything_but_a_sentence(tmp_path: Path) -> None:
    outcome = files.fuzz(240, tmp_path, seed=1)
    kinds = ("checkpoint bytes", "checkpoint", "weights", "fedmr.yaml", "site.yaml", "results.json", "manifest.csv")
    assert all(outcome[f"{kind} refused"] for kind in kinds), outcome


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("fuzz", "count"),
    [(replies.fuzz, 20_000), (exchanges.fuzz, 20_000), (files.fuzz, 10_000)],
    ids=["replies", "exchanges", "files"],
)
def test_no_mutant_of_many_is_uncaught(
    fuzz: Callable[[int, Path, int], Counter[str]], count: int, tmp_path: Path
) -> None:
    assert fuzz(count, tmp_path, 0).total() >= count
