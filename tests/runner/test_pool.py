"""Sites side by side: the same bits as one after the other, bounded memory, and what becomes of dead workers."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.data.base import Fold
from fedmr_med.errors import FedMRError
from fedmr_med.runner.local_sites import LocalSites, parts_of_test
from fedmr_med.runner.pool import BROADCAST, ProcessPool, ask
from fedmr_med.site.hospital import Hospital
from fedmr_med.wire.codec import Message
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.benchmarks import equal_states, tiny_federation, tiny_job


@pytest.mark.slow
@pytest.mark.parametrize(("method", "central"), [("moon", True), ("fedmr", False)])
def test_two_workers_give_the_model_of_one_bit_for_bit(
    method: str, central: bool, fmnist: Path, tmp_path: Path
) -> None:
    job = tiny_job(method, changes={"federation.wire": "float16"} if central else {})
    one = tiny_federation(job, fmnist, tmp_path / "one", central=central, share=0.6).run()
    federation = tiny_federation(job, fmnist, tmp_path / "two", central=central, share=0.6, workers=2)
    two = federation.run()
    assert equal_states(one, two)
    heads = [state.history.head and state.history.head.evaluation for state in (one, two)]
    assert heads[0] == heads[1]
    assert (heads[0] is not None) == (method == "fedmr")
    assert "wait" in federation.costs.spent
    assert not list((tmp_path / "two" / BROADCAST).iterdir())


class Killed(LocalSites):
    """The worker of client-3 is killed in the second round."""

    def reply(self, hospital: Hospital, task: TrainTask) -> SiteReply:
        if hospital.name == "client-3" and task.round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reply(hospital, task)


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_run_with_a_way_on_and_nothing_is_lost(fmnist: Path, tmp_path: Path) -> None:
    job = tiny_job("feddyn")
    whole = tiny_federation(job, fmnist, tmp_path / "whole").run()
    rounds: list[int] = []
    with pytest.raises(FedMRError, match=r"A worker process ended.*The same command resumes"):
        tiny_federation(job, fmnist, tmp_path / "stopped", workers=2, make_sites=Killed).run(
            lambda state: rounds.append(state.round)
        )
    assert rounds == [1]
    again = tiny_federation(job, fmnist, tmp_path / "stopped").run(lambda state: rounds.append(state.round))
    assert rounds == [1, 2, 3]
    assert equal_states(again, whole)


class _Eager:
    """A pool that answers at once and counts how many answers nobody has taken yet."""

    def __init__(self) -> None:
        self.open = self.most = 0

    def submit(self, *_: Any) -> "_Eager":
        self.open += 1
        self.most = max(self.most, self.open)
        return self

    def result(self) -> int:
        self.open -= 1
        return self.open


def test_answers_held_grow_with_the_workers_and_not_with_the_sites(tmp_path: Path) -> None:
    pool: Any = _Eager()
    names = [f"client-{number}" for number in range(100)]
    answers = ProcessPool(pool, 3, tmp_path).each(ask, names, Message({}))
    assert [name for name, _ in answers] == names
    assert pool.most == 6


def test_the_parts_of_the_test_set_are_whole_batches() -> None:
    test = Fold(np.zeros((40, 1)), np.zeros(40, dtype=np.int64))
    assert parts_of_test(test, 8, 1) == ["0:40"]
    assert parts_of_test(test, 8, 2) == ["0:24", "24:40"]
    assert parts_of_test(test, 8, 9) == ["0:8", "8:16", "16:24", "24:32", "32:40"]
