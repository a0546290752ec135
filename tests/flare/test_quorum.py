"""The quorum counts usable replies only, with FLARE's own bookkeeping of who has answered."""

import time
from dataclasses import replace

import numpy as np
import pytest
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.bcast_manager import BcastTaskManager
from nvflare.apis.shareable import Shareable, make_reply

from fedmr_med.flare.aggregator import PrototypeAggregator
from fedmr_med.flare.controller import FedMRController
from fedmr_med.wire import codec as wire
from tests.helpers.contexts import peer_context
from tests.helpers.site_at_work import full_reply
from tests.helpers.small import initial_state, small_job

SITES = ("bcn", "msk", "vienna-dias")


class Round:
    """A round that three hospitals were asked for and two have to answer."""

    def __init__(self) -> None:
        job = small_job(federation={"min_sites": 2})
        self.aggregator = PrototypeAggregator(job)
        self.aggregator.open_round(initial_state(job), num_sites=3)
        self.controller = FedMRController()
        self.controller.aggregator = self.aggregator
        self.controller._min_clients, self.controller._current_num_targets = 2, 3
        self.task = Task(name="train", data=Shareable())
        self.task.targets = list(SITES)
        self.manager = BcastTaskManager(self.task, min_responses=2, wait_time_after_min_received=0)

    def answer(self, site: str, reply: Shareable, named: str | None = None) -> None:
        """Let a hospital answer, as FLARE's server would process it."""
        client_task = ClientTask(client=Client(site, "token"), task=self.task)
        client_task.result = reply
        self.task.client_tasks.append(client_task)
        self.controller._process_train_result(client_task, peer_context(named or site))
        client_task.result_received_time = time.time()

    @property
    def closed(self) -> bool:
        return bool(self.manager.check_task_exit(self.task)[0])


def good() -> Shareable:
    return wire.encode_reply(full_reply())


def with_nan() -> Shareable:
    model = {**full_reply().model, "classifier.bias": np.full(8, np.nan, np.float32)}
    return wire.encode_reply(replace(full_reply(), model=model))


def test_two_good_replies_close_the_round() -> None:
    a_round = Round()
    a_round.answer("bcn", good())
    assert not a_round.closed
    a_round.answer("msk", good())
    assert a_round.closed


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(with_nan, "NaN"), (lambda: make_reply(ReturnCode.EXECUTION_EXCEPTION), "it answered EXECUTION_EXCEPTION")],
    ids=["NaN", "error"],
)
def test_a_reply_of_no_use_does_not_count(bad, reason: str) -> None:
    a_round = Round()
    a_round.answer("bcn", bad())
    a_round.answer("msk", good())
    assert not a_round.closed, "one usable reply of the two that are needed"
    a_round.answer("vienna-dias", good())
    assert a_round.closed
    answered, refused = a_round.aggregator.standing()
    assert answered == ["msk", "vienna-dias"]
    assert reason in refused["bcn"]


def test_a_round_nobody_is_left_to_save_closes() -> None:
    a_round = Round()
    for site in SITES:
        a_round.answer(site, with_nan())
    assert a_round.closed


def test_a_reply_in_another_hospitals_name_is_refused() -> None:
    a_round = Round()
    a_round.answer("bcn", good(), named="msk")
    assert a_round.aggregator.standing() == ([], {"bcn": "it calls itself 'msk'"})
    a_round.answer("msk", good())
    assert a_round.aggregator.standing()[0] == ["msk"]
