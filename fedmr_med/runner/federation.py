"""A whole federation on one machine, for studies with many clients.

It runs the same sites and the same server as a FLARE job, with the same messages between them. Only FLARE is left
out, and with it a process per client task. One network goes from site to site, or one in each of a few worker
processes; replies are added up in the order of the site names, and what a site keeps from round to round is on disk:
memory does not grow with the number of sites.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.demo import effective_job
from fedmr_med.errors import ConfigError, FedMRError, WireError
from fedmr_med.evaluation.metrics import pooled
from fedmr_med.evaluation.results import Evaluation
from fedmr_med.process import kept_memory
from fedmr_med.report.lines import refused_line, runaway_line
from fedmr_med.runner.crew import Crew, crew
from fedmr_med.runner.desk import CLIENT_STATE, Desk, Work, parts_of_test
from fedmr_med.secure.identity import UNSIGNED
from fedmr_med.server.chain import Chain
from fedmr_med.server.collect import ReplyCollector
from fedmr_med.server.head import HeadCollector, head_exchange, scored_head, wants_head, with_head
from fedmr_med.server.sampling import draw_sites
from fedmr_med.server.secure import SecureTotals
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.server.stopping import has_ended
from fedmr_med.site.hospital import open_data
from fedmr_med.site.secure import SecureSite
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.codec import Message, decode_task, encode_task
from fedmr_med.wire.secure import decode_question, encode_answer

__all__ = ["CLIENT_STATE", "SERVER", "Costs", "Federation", "open_sites"]

SERVER = "server"

_log = logging.getLogger(__name__)


@dataclass
class Costs:
    """Where the time of a run went, in seconds; a resumed run counts from its resumption.

    Attributes:
        tasks: train tasks answered.
        wall: time in all.
        spent: time of ``train``: local training, ``prototypes`` and ``head``: the passes for class sums and for the
            head, ``score``: scoring models. With workers, ``wait``: in which the server waits for them, instead of the
            first two.
    """

    tasks: int = 0
    wall: float = 0.0
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def engine_ms_per_task(self) -> float:
        """What the runner itself costs per train task, in milliseconds: all but training and scoring."""
        return 1e3 * (self.wall - sum(self.spent.values())) / max(self.tasks, 1)


class Federation:
    """Runs a job with all its sites on this machine.

    Args:
        job: the job's settings; on the demo it has those for the demo.
        sites: settings of each site by name.
        folder: holds the checkpoint and what the sites keep. A run that was stopped resumes from there.
        test: a test set at the server, on which each round's model is scored. None lets the sites score what
            they receive, as in a FLARE job.
        workers: processes in which sites work side by side, each with a network of its own; with 1 they work one
            after the other in this process. The result is the same.
        make_desk: makes what answers for the sites; a study of what bad replies do brings its own.
        initial_model: a file with the weights to start from; None takes the seeded or pretrained ones.

    Attributes:
        costs: where the time went.

    Raises:
        ConfigError: there are no sites, only some of them have images, or more replies are asked for than sites take
            part.
        DataError: a site has no usable data.
    """

    def __init__(
        self,
        job: JobConfig,
        sites: Mapping[str, SiteConfig],
        folder: Path,
        *,
        test: Fold | None = None,
        workers: int = 1,
        make_desk: Callable[..., Desk] = Desk,
        initial_model: Path | None = None,
    ):
        self.job = job = effective_job(job, sites)
        self.sites = sites
        self.folder = folder
        self.costs = Costs()
        # Opened once for all rounds. Sites with many images have them in files, mapped into memory.
        self._data = open_sites(job, sites)
        self._asked = False
        self._chain = Chain(folder, job, initial_model=initial_model)
        if test is not None and job.federation.buffers == "local":
            raise ConfigError(
                "federation.buffers: local leaves nothing for the server to score; let sites do it.",
                code="config.conflict",
                key="federation.buffers",
            )
        self._work = Work(job, sites, folder, test)
        self._workers = min(workers, job.federation.sites_per_round or len(sites), len(sites))
        self._make_desk = make_desk

    def run(self, after_round: Callable[[GlobalState], None] = lambda state: None) -> GlobalState:
        """Run the remaining rounds and return the final state.

        Args:
            after_round: called with the new state once it is safe on disk.

        Raises:
            CheckpointError: the folder's checkpoint belongs to another configuration.
            FedMRError: a site failed, or too few replies of a round were usable.
        """
        state = self._chain.open()
        try:
            # Giving freed memory back after every site would be most of what the runner costs.
            with kept_memory(), crew(self._work, self._workers, self._data, self._make_desk) as at_work:
                return self._run(state, at_work, after_round)
        finally:
            self._chain.close()

    def _run(self, state: GlobalState, at_work: Crew, after_round: Callable[[GlobalState], None]) -> GlobalState:
        while not has_ended(self.job, state):
            started = time.perf_counter()
            state = self._round(state, at_work)
            if warning := runaway_line(state.history):
                _log.warning(warning)
            if self._work.test is not None or has_ended(self.job, state):
                state = self._scored(state, at_work)
            self._chain.save(state)
            state = self._with_head(state, at_work)
            self.costs.wall += time.perf_counter() - started
            after_round(state)
        if not self.job.federation.rounds and not state.history.evaluations:
            state = self._scored(state, at_work)
            self._chain.save(state)
        # A run that was stopped between its last round and its head has no round left to make it in.
        return self._with_head(state, at_work)

    def _round(self, state: GlobalState, at_work: Crew) -> GlobalState:
        """Ask this round's sites and add up their replies in the order of their names."""
        job = self.job
        collector = ReplyCollector(job, state, num_sites=len(self.sites), in_order=True)
        drawn = draw_sites(self.sites, job.federation.sites_per_round, seed=job.seed, round_number=state.round)
        # Where the server scores, nobody else needs the model that is scored.
        sent = state if self._work.test is None else replace(state, averaged={})
        task = self._task(sent, drawn, halved=job.federation.halved(state.parameters))
        waited = at_work.waited
        for name, trained in at_work.ask(Desk.train, drawn, task):
            try:
                collector.offer(name, trained.message)
            except WireError as e:
                _log.warning(refused_line(name, str(e)))
            self.costs.tasks += 1
            if at_work.workers == 1:
                for phase, seconds in trained.spent.items():
                    self.costs.spent[phase] += seconds
        if at_work.workers > 1:
            self.costs.spent["wait"] += at_work.waited - waited
        if not job.federation.sums_statistics or not collector.has_quorum:
            return collector.close()
        started = time.perf_counter()
        statistics = self._totals.statistics(decode_task(task), collector.standing()[0])
        self.costs.spent["secure"] += time.perf_counter() - started
        return collector.close(statistics)

    def _scored(self, state: GlobalState, at_work: Crew) -> GlobalState:
        """Add the scores of the model in ``state`` to its history."""
        return state.scored(state.history.with_evaluation(self._evaluation(state, at_work)))

    def _with_head(self, state: GlobalState, at_work: Crew) -> GlobalState:
        """Make, score and keep the closed-form head, where one is due."""
        if not wants_head(self.job, head_exchange(self.job), state):
            return state
        collector = HeadCollector(self.job, state)
        started = time.perf_counter()
        task = self._task(state.leaving(), self.sites)
        for name, statistics in at_work.ask(Desk.head, sorted(self.sites), task):
            collector.offer(name, statistics)
        if self.job.federation.sums_statistics:
            made = collector.close_secure(*self._totals.head(decode_task(task), collector.answered))
        else:
            made = collector.close()
        self.costs.spent["head"] += time.perf_counter() - started
        if made is None:
            return state
        state = scored_head(made, self._evaluation(with_head(made), at_work))
        self._chain.save(state)
        return state

    def _evaluation(self, state: GlobalState, at_work: Crew) -> Evaluation:
        """Score the model of ``state`` at the server, or at all sites."""
        started = time.perf_counter()
        if self._work.test is None:
            result = self._site_scores(state, at_work)
        else:
            parts = at_work.ask(Desk.score, parts_of_test(self._work, at_work.workers), self._task(state.leaving()))
            result = Evaluation.of(state.round, {SERVER: pooled(dict(parts))[0]})
        self.costs.spent["score"] += time.perf_counter() - started
        return result

    def _site_scores(self, state: GlobalState, at_work: Crew) -> Evaluation:
        task = self._task(state.leaving(), self.sites)
        answers = dict(at_work.ask(Desk.validate, sorted(self.sites), task))
        if self.job.federation.sums_statistics:
            return self._totals.evaluation(decode_task(task), sorted(answers))
        return Evaluation.of(state.round, answers)

    @cached_property
    def _totals(self) -> SecureTotals:
        """The secure sums of this run."""
        return SecureTotals(self.job, self._chain_id, self._ask)

    def _ask(self, question: Message, sites: Sequence[str], enough: int) -> dict[str, Message]:
        """Let sites answer a step of a secure sum; one that refuses has dropped out."""
        answers = {}
        for name in sites:
            policy = self.sites[name].policy.restricted_by(self.job.policy)
            site = SecureSite(name, self.job, policy, self.folder / CLIENT_STATE / name, UNSIGNED)
            try:
                answers[name] = encode_answer(site.answer(decode_question(question)))
            except FedMRError as e:
                _log.warning("%s takes no part in a secure sum: %s", name, e)
        return answers

    @property
    def _chain_id(self) -> str:
        return self.job.chain or "runner"

    def _task(
        self, state: GlobalState, sites: Collection[str] | None = None, *, halved: Collection[str] = ()
    ) -> Message:
        known = sites if self._asked else None  # sites may have lost what they kept since the run was stopped
        self._asked = True
        return encode_task(train_task(state, self.job, self._chain_id, known), halved=halved)


def open_sites(job: JobConfig, sites: Mapping[str, SiteConfig]) -> dict[str, SiteData]:
    """Return the data of all sites by name, or refuse a federation that cannot run.

    Raises:
        ConfigError: there are no sites, or more replies are asked for than sites take part.
        DataError: a site's data is missing, damaged, or less than two training samples.
    """
    asked = min(job.federation.sites_per_round or len(sites), len(sites))
    if not 1 <= job.federation.min_sites <= asked:
        raise ConfigError(
            f"federation.min_sites: {job.federation.min_sites} replies cannot come from {asked} sites.",
            code="config.conflict",
            key="federation.min_sites",
        )
    return {name: open_data(name, job, site) for name, site in sites.items()}
