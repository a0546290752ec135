"""A chain on disk: what cannot be read again is never written, and what is damaged is not resumed from."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.history import Best, History
from fedmr_med.evaluation.records import RoundRecord, SiteRound, Withdrawal
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.models.model_file import load_model
from fedmr_med.server.chain import BEST_MODEL, DAMAGED, RESULTS, Chain
from fedmr_med.server.state import GlobalState
from tests.helpers.methods import same_model
from tests.helpers.small import initial_state, small_job

JOB = small_job("feddyn", federation={"rounds": 4})
PART = SiteRound(samples=9, shared_classes=(), bytes_up=0, bytes_down=0)


def after(state: GlobalState) -> GlobalState:
    """Return the state one round later."""
    number = state.round + 1
    model = {name: (array + 1).astype(array.dtype) for name, array in state.model.items()}
    history = state.history.with_round(RoundRecord(round=number, sites={"bcn": PART}))
    return replace(state, model=model, round=number, accepted={"bcn": state.round}, history=history)


@pytest.fixture
def states(tmp_path: Path) -> list[GlobalState]:
    """The states after rounds 1 and 2, saved in a chain."""
    first = after(initial_state(JOB))
    both = [first, after(first)]
    chain = Chain(tmp_path / "chain-1", JOB)
    for state in both:
        chain.save(state)
    return both


def opened(tmp_path: Path, job: JobConfig = JOB) -> GlobalState:
    chain = Chain(tmp_path / "chain-1", job)
    try:
        return chain.open()
    finally:
        chain.close()


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a checkpoint into one that was written like that: without the digest, which would tell of any change."""
    content = torch.load(path, weights_only=True)
    del content["sha256"]
    edit(content)
    path.unlink()  # the previous one may be the same file
    torch.save(content, path)


def test_the_last_checkpoint_is_resumed_from(tmp_path: Path, states: list[GlobalState]) -> None:
    assert same_model(opened(tmp_path), states[1])
    assert not list((tmp_path / "chain-1").glob(".*")), "nothing is left over"


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "NaN": lambda content: content["model"]["conv1.bias"].fill_(torch.nan),
    "infinite state of the method": lambda content: content["method"]["h.conv1.bias"].fill_(torch.inf),
    "NaN prototype": lambda content: content["prototypes"][0].fill_(torch.nan),
    "round as text": lambda content: content.update(round="2"),
    "round as bool": lambda content: content.update(round=True),
    "negative round": lambda content: content.update(round=-1),
    "round that was never run": lambda content: content.update(round=3),
    "accepted in the future": lambda content: content.update(accepted={"bcn": 3}),
    "accepted as text": lambda content: content.update(accepted={"bcn": "1"}),
    "accepted by number": lambda content: content.update(accepted={1: 1}),
    "parameters": lambda content: content.update(parameters=["conv1.bias"]),
    "parameters as a number": lambda content: content.update(parameters=3),
    "history": lambda content: content.update(history="{}{"),
    "null in the history": lambda content: content.update(history=content["history"].replace("9", "null")),
    "prototypes of another size": lambda content: content["prototypes"].__setitem__(1, torch.ones(3, dtype=torch.bool)),
    "prototypes of another type": lambda content: content["prototypes"].__setitem__(2, content["prototypes"][1]),
    "two prototypes": lambda content: content["prototypes"].pop(),
    "method gone": lambda content: content.update(method={}),
    "method of another type": lambda content: content["method"].update({"h.conv1.bias": torch.ones(1).bfloat16()}),
    "a list for the model": lambda content: content.update(model=[1]),
    "a number in the model": lambda content: content["model"].update({"conv1.bias": 3}),
    "format as bool": lambda content: content.update(format=True),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_older_one_offered(
    tmp_path: Path, states: list[GlobalState], damage: str
) -> None:
    change(tmp_path / "chain-1" / "checkpoint.pt", DAMAGE[damage])
    with pytest.raises(CheckpointError, match=r"resume chain-1 --from-previous` goes back to round 1\."):
        opened(tmp_path)
    back = JOB.override({"federation": {"resume_from": "previous"}})
    assert same_model(opened(tmp_path, back), states[0])
    assert (tmp_path / "chain-1" / DAMAGED).exists(), "for whoever wants to know what happened"
    assert same_model(opened(tmp_path), states[0]), "later follow-ups go on from there"


def test_a_chain_that_cannot_be_opened_is_let_go_of(tmp_path: Path, states: list[GlobalState]) -> None:
    """The object that was refused can live on, as in a notebook, and must not be in the way of the next one."""
    (tmp_path / "chain-1" / "checkpoint.pt").write_bytes(b"damaged")
    refused = Chain(tmp_path / "chain-1", JOB)
    with pytest.raises(CheckpointError, match="from-previous"):
        refused.open()
    next_one = Chain(tmp_path / "chain-1", JOB.override({"federation": {"resume_from": "previous"}}))
    assert same_model(next_one.open(patience=0), states[0])
    next_one.close()


def test_after_a_site_left_the_model_of_an_earlier_round_and_the_results_say_so(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "chain-1", JOB)
    first = after(initial_state(JOB))
    first = replace(first, history=first.history.model_copy(update={"best": Best(round=1, balanced_accuracy=0.5)}))
    chain.save(first)
    state = after(after(first))
    chain.save(state)
    chain.write_results(state)
    left = (Withdrawal(site="bcn", time="2026-01-01T00:00:00Z", round=3),)
    chain.leave(replace(state, history=state.history.model_copy(update={"withdrawn": left})))
    model = load_model(chain.folder / BEST_MODEL)
    assert (model.round, model.lineage) == (1, left)
    (run,) = read_result(chain.folder / RESULTS, RunResults).runs
    assert run.history is not None
    assert run.history.withdrawn == left


def test_where_both_are_damaged_there_is_nothing_to_offer(tmp_path: Path, states: list[GlobalState]) -> None:
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (tmp_path / "chain-1" / name).write_bytes(b"damaged")
    with pytest.raises(CheckpointError) as refused:
        opened(tmp_path)
    assert "from-previous" not in str(refused.value)


def with_nan_in_the_history(state: GlobalState) -> GlobalState:
    site = PART.model_copy(update={"terms": {"a": float("nan")}})
    last = state.history.rounds[-1].model_copy(update={"sites": {"bcn": site}})
    return replace(state, history=History.model_construct(rounds=(last,), evaluations=(), best=None))


BAD_STATES: dict[str, Callable[[GlobalState], GlobalState]] = {
    "NaN": lambda state: replace(state, model=state.model | {"conv1.bias": state.model["conv1.bias"] * np.nan}),
    "a round that is no number": lambda state: replace(state, round="3"),
    "a history that JSON cannot hold": with_nan_in_the_history,
}


@pytest.mark.parametrize("kind", BAD_STATES)
def test_what_could_not_be_resumed_from_is_not_written(tmp_path: Path, states: list[GlobalState], kind: str) -> None:
    bad = BAD_STATES[kind](after(states[1]))
    with pytest.raises(CheckpointError):
        Chain(tmp_path / "chain-1", JOB).save(bad)
    assert same_model(opened(tmp_path), states[1])
    assert not list((tmp_path / "chain-1").glob(".*"))
