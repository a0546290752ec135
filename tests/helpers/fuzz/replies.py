"""Mutated replies through the whole server: collector, aggregation, checkpoint and back."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fedmr_med import __version__
from fedmr_med.arrays import difference, forms_of
from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.flare import messages
from fedmr_med.report.lines import site_line
from fedmr_med.report.summary import summary
from fedmr_med.server.chain import Chain
from fedmr_med.server.checkpoint import load_checkpoint
from fedmr_med.server.state import GlobalState, initial_state
from fedmr_med.wire.agreement import WIRE_VERSION
from fedmr_med.wire.codec import Message, encode_reply
from fedmr_med.wire.kinds import TRAIN
from tests.helpers.fuzz.mutate import Random, mutated, mutated_array, odd
from tests.helpers.small import small_hospital, small_job, task_for

METHODS = ("fedmr", "feddyn", "feddc", "fednova")
HONEST = ("bcn", "vienna-dias", "vidir-modern")
BAD = "msk"
PER_ROUND = 20
RESIDUALS = {"together", "alone"}  # their bound grows with test images, not with training images
NETWORK = {"name": "narrow_resnet", "options": {"width": 8, "blocks": 1}}


class Setup:
    """A job with real replies of its sites to the first two tasks."""

    def __init__(self, method: str, folder: Path):
        self.job = small_job(method, model=NETWORK, federation={"min_sites": 1, "rounds": 3})
        self.states = [initial_state(self.job)]
        self.replies: list[dict[str, Message]] = []
        sites = {name: small_hospital(name, self.job, folder) for name in (*HONEST, BAD)}
        for _ in range(2):
            task = task_for(self.states[-1], self.job)
            self.replies.append({name: encode_reply(TRAIN, site.train(task)) for name, site in sites.items()})
            collector = TrainExchange(self.job, self.states[-1], num_sites=len(sites))
            for name, reply in self.replies[-1].items():
                collector.offer(name, reply)
            self.states.append(collector.close())


def fuzz(count: int, folder: Path, seed: int) -> Counter[str]:
    """Send ``count`` mutated replies; return what became of them.

    Raises:
        AssertionError: a rule was broken.
        Exception: something raised that no rule names.
    """
    random = np.random.default_rng(seed)
    setups = [Setup(method, folder / method) for method in METHODS]
    outcome: Counter[str] = Counter()
    number = 0
    while outcome["replies"] < count:
        setup, at = setups[number % len(setups)], number // len(setups) % 2
        _round(setup, at, min(PER_ROUND, count - outcome["replies"]), folder / f"chain-{number % 8}", random, outcome)
        number += 1
    outcome["rounds"] = number
    return outcome


def _round(setup: Setup, at: int, count: int, folder: Path, random: Random, outcome: Counter[str]) -> None:
    """Run one round of the honest sites and of ``count`` others that send mutants."""
    job, state, replies = setup.job, setup.states[at], setup.replies[at]
    collector = TrainExchange(job, state, num_sites=len(HONEST) + count)
    sent = {f"{BAD}-{number:02}": mutant(replies[BAD], random) for number in range(count)}
    for site in HONEST:
        collector.offer(site, replies[site])
    for site, message in sent.items():
        outcome["replies"] += 1
        through_flare = random.random() < 0.5
        try:
            sent_by_flare = messages.to_shareable(message) if through_flare else None
        except (AttributeError, TypeError, ValueError):
            # FLARE's own containers do not take it, so it could not have been sent.
            outcome["unsendable"] += 1
            continue
        try:
            received = message if sent_by_flare is None else messages.to_message(sent_by_flare)
            reply = collector.offer(site, received)
        except WireError as e:
            collector.refuse(site, str(e))
            outcome["refused"] += 1
        else:
            site_line(reply, job)
            _check_accepted(received, job, state)
            outcome["accepted"] += 1
    new = collector.close()
    assert set(HONEST) <= {*new.history.rounds[-1].sites, *new.history.rounds[-1].refused}
    _check_state(new, job, folder)


def mutant(message: Message, random: Random) -> Message:
    """Return a message with something changed: mostly one thing, sometimes several."""
    parts: Any = {name: dict(arrays) for name, arrays in message.parts.items()}
    meta: Any = message.meta
    for _ in range(int(random.choice([1, 1, 1, 2, 4]))):
        action = random.integers(10)
        if action < 5:
            meta = mutated(meta, random)
        elif action < 8 and parts and all(isinstance(arrays, dict) and arrays for arrays in parts.values()):
            part = list(parts)[random.integers(len(parts))]
            name = list(parts[part])[random.integers(len(parts[part]))]
            parts[part][name] = mutated_array(parts[part][name], random)
        elif action == 8:
            parts = mutated({name: dict.fromkeys(arrays, 0) for name, arrays in message.parts.items()}, random)
        elif isinstance(parts, dict) and parts:
            part = list(parts)[random.integers(len(parts))]
            if isinstance(parts[part], dict) and parts[part]:
                name = list(parts[part])[random.integers(len(parts[part]))]
                if random.random() < 0.5:
                    del parts[part][name]
                else:
                    parts[part][name] = odd(random)
    return Message(parts, meta)


def _check_accepted(message: Message, job: JobConfig, state: GlobalState) -> None:
    """Hold an accepted message against the rules, by other means than the server does."""
    meta, parts = message.meta, message.parts
    assert meta["wire"] == WIRE_VERSION and meta["settings"] == job.digest()
    assert meta["toolkit"].split(".")[:2] == __version__.split(".")[:2]
    assert type(meta["round"]) is int and meta["round"] == state.round
    assert type(meta["samples"]) is int and 1 <= meta["samples"] <= job.federation.max_samples
    assert type(meta["bytes_down"]) is int and 0 <= meta["bytes_down"] <= 10**12
    assert difference(parts["model"], forms_of(state.model)) is None
    for name, array in [item for arrays in parts.values() for item in arrays.items()]:
        assert np.isfinite(array).all(), name
        if name not in RESIDUALS:
            assert np.linalg.norm(array.astype(float)) <= 1.01 * job.federation.max_norm * max(1, meta["samples"]), name
        if name.endswith(("running_var", "num_batches_tracked")):
            assert (array >= 0).all(), name
    _check_plain(meta.get("report"))
    scores = meta.get("scores")
    if scores is not None:
        _check_plain(scores)
        samples = scores["samples"] if "samples" in scores else parts["scores"]["confusion"].sum()
        assert samples <= job.federation.max_samples
        for name in RESIDUALS & parts.get("scores", {}).keys():
            assert (parts["scores"][name] <= 100.0 * job.task.num_classes * max(2, samples) ** 3).all(), name
    shared = parts.get("prototypes")
    if shared is not None:
        assert (shared["counts"] >= 0).all() and shared["counts"].sum() <= meta["samples"]


def _check_plain(content: Any) -> None:
    """Only names, bounded whole numbers and finite fractions."""
    if isinstance(content, dict):
        assert all(isinstance(key, str) and len(key) <= 40 for key in content)
        for value in content.values():
            _check_plain(value)
    elif isinstance(content, list):
        for value in content:
            _check_plain(value)
    elif content is not None:
        assert (
            type(content) in (int, float, np.int64, np.float32) and math.isfinite(content) and abs(content) <= 1e12
        ), content


def _check_state(new: GlobalState, job: JobConfig, folder: Path) -> None:
    """The new state is finite, can be written, read back, summed up, and scored against."""
    assert new.defect() is None
    chain = Chain(folder / job.method.name, job)
    chain.save(new)
    chain.write_results(new)
    loaded = load_checkpoint(chain.checkpoint, job, initial_state(job))
    assert loaded.round == new.round and loaded.history == new.history
    assert all(np.array_equal(loaded.model[name], new.model[name]) for name in new.model)
    summary(new, job, chain.checkpoint, demo=True)
