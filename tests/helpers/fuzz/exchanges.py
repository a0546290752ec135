"""Mutated messages of the other exchanges: steps of secure sums at both ends, statistics for a head, and weights."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedmr_med.errors import FedMRError, WireError
from fedmr_med.exchange.closing import SecureTotals
from fedmr_med.exchange.head import HeadExchange
from fedmr_med.flare import messages
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.secure.cohort import Cohort
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.secure.messages import Shares
from fedmr_med.server.state import initial_state
from fedmr_med.site.secure import COHORT_FILE, SecureSite
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire.codec import Message, decode_task, encode_reply, encode_task
from fedmr_med.wire.kinds import HEAD
from fedmr_med.wire.secure import decode_question, encode_answer
from tests.helpers.fuzz.mutate import Random
from tests.helpers.fuzz.replies import BAD, HONEST, PER_ROUND, mutant
from tests.helpers.small import small_hospital, small_job, task_for

SITES = (*HONEST, BAD)
FEATURES = {"task": {"image_size": 24}, "head": {"exchange": "last", "projection": 6}}


def fuzz(count: int, folder: Path, seed: int) -> Counter[str]:
    """Send ``count`` mutated messages; return what became of them.

    Raises:
        AssertionError: a rule was broken.
        Exception: something raised that no rule names.
    """
    random = np.random.default_rng(seed)
    kinds = (SecureSums(folder / "sums"), Heads(folder / "heads"), Weights(folder / "weights"))
    outcome: Counter[str] = Counter()
    number = 0
    while outcome["messages"] < count:
        kinds[number % len(kinds)].send(number, random, outcome)
        number += 1
    return outcome


class SecureSums:
    """Whole secure sums of real sites, asked by the real server; of the messages either way some are mutated."""

    def __init__(self, folder: Path):
        self.job = small_job("fedmr", federation={"secure": "statistics", "min_sites": 3})
        self._forms, self._folder = reply_form(self.job), folder
        for name in SITES:
            Cohort(folder / name / COHORT_FILE).accept(SITES, by="steward")

    def send(self, number: int, random: Random, outcome: Counter[str]) -> None:
        """Try to open one total; what is opened is over all sites."""
        chain, release = f"chain-{number}", "train-0-ab"
        sites = {name: SecureSite(name, self.job, SitePolicy(), self._folder / name, UNSIGNED) for name in SITES}
        counts = {PROTOTYPES.name: {"counts": np.full(self.job.task.num_classes, 11)}}
        for site in sites.values():
            site.hold(chain, release, counts, self._forms)

        def ask(question: Message, asked: Sequence[str], enough: int) -> Mapping[str, Message | WireError]:
            return {name: answered(sites[name], question) for name in asked}

        def answered(site: SecureSite, question: Message) -> Message | WireError:
            try:
                answer = site.answer(decode_question(_sometimes(question, random, outcome)))
                if isinstance(answer, Shares):
                    assert answer.own.keys() == set(SITES) and not answer.pairs, "shares are for the whole cohort alone"
                return _sometimes(encode_answer(answer), random, outcome)
            except FedMRError as e:
                outcome["questions refused"] += 1
                return WireError(str(e), code="wire.form")

        total = SecureTotals(self.job, chain, ask).total(release, SITES)
        outcome["totals not opened" if total.values is None else "totals opened"] += 1
        if total.values is not None:
            assert total.record.sites == tuple(sorted(SITES))


def _sometimes(message: Message, random: Random, outcome: Counter[str]) -> Message:
    """Return one message in twelve mutated: a sum of four sites has forty, so that few totals are opened."""
    if random.random() > 1 / 12:
        return message
    return received(message, random, outcome)


def received(message: Message, random: Random, outcome: Counter[str]) -> Message:
    """Return what comes out of FLARE's containers for a mutated message, which is the message if they do not take it.

    Raises:
        WireError: it is not of the form of a message.
    """
    outcome["messages"] += 1
    try:
        sent = messages.to_shareable(mutant(message, random))
    except (AttributeError, TypeError, ValueError):
        outcome["unsendable"] += 1
        return message
    return messages.to_message(sent)


class Heads:
    """Statistics for a closed-form head: mutants beside those of honest sites."""

    def __init__(self, folder: Path):
        self.job = small_job("fedmr", **FEATURES)
        self.state = initial_state(self.job)
        task = task_for(self.state, self.job)
        self.replies = {
            name: encode_reply(HEAD, small_hospital(name, self.job, folder).head_statistics(task)) for name in SITES
        }

    def send(self, number: int, random: Random, outcome: Counter[str]) -> None:
        """Close one exchange; its head is finite."""
        exchange = HeadExchange(self.job, self.state)
        for name in HONEST:
            exchange.offer(name, self.replies[name])
        for copy in range(PER_ROUND):
            site = f"{BAD}-{copy:02}"
            try:
                exchange.offer(site, received(self.replies[BAD], random, outcome))
                outcome["statistics taken"] += 1
            except WireError as e:
                exchange.refuse(site, str(e))
                outcome["statistics refused"] += 1
        new = exchange.close()
        assert new.defect() is None
        assert all(np.isfinite(array).all() for array in new.head.values())


class Weights:
    """First tasks with mutated weights, at a site with the default policy: it takes those of the job's seed alone."""

    def __init__(self, folder: Path):
        self.job = small_job("fedmr", federation={"min_sites": 3}, train={"updates": 20})
        self.task = encode_task(task_for(initial_state(self.job), self.job))
        self.site = small_hospital(BAD, self.job, folder, SitePolicy(share_metrics="per_class"))

    def send(self, number: int, random: Random, outcome: Counter[str]) -> None:
        """Let the site score the model of some tasks."""
        for _ in range(PER_ROUND):
            try:
                task = decode_task(received(self.task, random, outcome))
                self.site.validate(task)
            except FedMRError:
                outcome["weights refused"] += 1
                continue
            outcome["weights taken"] += 1
            for name, array in self.task.parts["model"].items() if task.round == 0 else ():
                np.testing.assert_allclose(task.model[name], array, atol=1e-4, err_msg=name)
