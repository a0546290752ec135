"""A server with other software sends sites what it likes: different questions, other chains, more rounds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.errors import FedMRError, WireError
from fedmr_med.exchange.loop import run
from fedmr_med.exchange.transport import Answer
from fedmr_med.methods.plan import plan
from fedmr_med.server.chain import Chain
from fedmr_med.site.engine import Site
from fedmr_med.wire.codec import Message, decode_task, encode_task
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import Backbone, TrainTask
from tests.helpers.errors import raises
from tests.helpers.small import OPEN, initial_state, small_hospital, small_job, task_for
from tests.helpers.transports import demo_sites

VICTIM, OTHERS = "rosendahl", ("bcn", "msk", "vidir-modern")
FIRST = 0  # the class that the others' network calls everything


def constant(task: TrainTask) -> TrainTask:
    """Return a task with the same model to train, and one to score that calls every picture the first class."""
    scored = {name: array for name, array in task.model.items() if name.endswith(("weight", "bias"))}
    bias = np.zeros_like(scored["classifier.bias"])
    bias[FIRST] = 9.0
    silent = {"classifier.weight": np.zeros_like(scored["classifier.weight"]), "classifier.bias": bias}
    return replace(task, averaged=scored | silent)


class TwoQuestions:
    """Sends the victim the job's task, and in the second round all others a changed one."""

    in_order = False

    def __init__(self, sites: Mapping[str, Site], change: Callable[[TrainTask], TrainTask]):
        self._sites, self._change = sites, change
        self.asked: TrainTask | None = None

    def sites(self, kind: str) -> list[str]:
        return sorted(self._sites)

    def ask(
        self, kind: str, message: Message, sites: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[tuple[str, Answer]]:
        second = decode_task(message) if kind == TRAIN and message.meta["round"] == 1 else None
        for site in sites:
            if second is not None and site == VICTIM:
                self.asked = second
            asked = message if second is None or site == VICTIM else encode_task(self._change(second))
            try:
                yield site, self._sites[site].answer(kind, asked)
            except FedMRError as e:
                yield site, WireError(str(e), code="wire.refused")


@pytest.mark.parametrize("cheats", [False, True])
def test_different_questions_have_no_total_that_is_one_sites_own(tmp_path: Path, *, cheats: bool) -> None:
    """All cells but those of the others' one answer would be the victim's alone (Pasquini et al., CCS 2022)."""
    job = small_job("fedavg", federation={"secure": "statistics", "min_sites": 3}, head={"exchange": "none"})
    sites = demo_sites(VICTIM, *OTHERS, policy=OPEN)
    at_work = {name: Site.simulated(name, job, site, tmp_path / name) for name, site in sites.items()}
    chain = Chain(tmp_path / "chain", job)
    transport = TwoQuestions(at_work, constant if cheats else lambda task: task)
    rounds = [step for step in plan(job) if step.kind == TRAIN]
    history = run(rounds, chain.open(), transport, chain).history
    chain.close()
    totals = [np.array(e.pooled_figures.confusion) for e in history.evaluations if e.round == 1 and e.pooled_figures]
    assert transport.asked is not None
    alone = job.override({"federation": {"secure": "none"}})
    own = small_hospital(VICTIM, alone, tmp_path / "truth").validate(transport.asked).scores
    assert own is not None and own.confusion is not None and own.confusion[:, FIRST + 1 :].any()
    read = [np.array_equal(total[:, FIRST + 1 :], own.confusion[:, FIRST + 1 :]) for total in totals]
    assert read == ([] if cheats else [False]), "the victim's cells were read"
    assert bool(history.rounds[1].secure.error) == cheats


@pytest.mark.parametrize("part", ["model", "method", "averaged", "prototypes", "backbone"])
def test_the_name_of_a_total_stands_for_all_that_was_asked(part: str) -> None:
    job = small_job()
    task = task_for(initial_state(job), job)
    array = {"classifier.bias": task.model["classifier.bias"] + np.float32(1e-6)}
    changes = {
        "model": {"model": task.model | array},
        "method": {"method": array},
        "averaged": {"averaged": array},
        "prototypes": {"prototypes": replace(task.prototypes, means=task.prototypes.means + 1e-6)},
        "backbone": {"backbone": Backbone.of(array)},
    }
    assert replace(task).release(TRAIN) == task.release(TRAIN)
    assert replace(task, **changes[part]).release(TRAIN) != task.release(TRAIN)


@pytest.mark.parametrize("kind", ["train", "validate", "head"])
def test_a_round_is_not_asked_again_under_the_name_of_another_chain(tmp_path: Path, kind: str) -> None:
    job = small_job(chain="agreed")
    site = Site.simulated("bcn", job, demo_sites("bcn")["bcn"], tmp_path)
    task = replace(task_for(initial_state(job), job), chain="agreed")
    site.exchange(kind, task)
    with raises("wire.chain"):
        site.exchange(kind, replace(task, chain="another"))


def test_a_site_trains_as_many_rounds_as_the_job_has(tmp_path: Path) -> None:
    job = small_job()
    site = Site.simulated("bcn", job, demo_sites("bcn")["bcn"], tmp_path)
    task = task_for(initial_state(job), job)
    with raises("wire.round"):
        site.exchange("train", replace(task, round=job.federation.rounds))
    with raises("wire.round"):
        site.exchange("train", replace(task, round=job.federation.rounds, rounds=10**9))
