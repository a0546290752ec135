"""A whole federation on one machine: the sites, the loop and the messages of a FLARE job, without a process per task.

One network goes from site to site, or one in each of a few worker processes; replies are added up in the order of the
site names, and what a site keeps from round to round is on disk: memory does not grow with the number of sites.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.demo import effective_job, on_demo
from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.metrics import pooled
from fedmr_med.exchange.events import Event, Refused, RoundDone
from fedmr_med.exchange.loop import run
from fedmr_med.exchange.plan import plan
from fedmr_med.exchange.transport import SERVER, Answer
from fedmr_med.process import kept_memory
from fedmr_med.report.lines import refused_line, runaway_line
from fedmr_med.runner.local_sites import LocalSites, Work, parts_of_test
from fedmr_med.runner.pool import Pool, ask, open_pool, score
from fedmr_med.schema import check_name
from fedmr_med.server.chain import Chain
from fedmr_med.server.state import GlobalState, with_weights
from fedmr_med.site.images import open_data
from fedmr_med.sites import SiteConfig
from fedmr_med.statistics.scores import SCORES
from fedmr_med.wire.codec import Message, encode_reply
from fedmr_med.wire.kinds import HEAD, SECURE, TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply

__all__ = ["SERVER", "Costs", "Federation", "open_sites"]

CHAIN = "runner"

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
        make_sites: makes what answers for the sites; a study of what bad replies do brings its own.
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
        make_sites: Callable[..., LocalSites] = LocalSites,
        initial_model: Path | None = None,
    ):
        for name in sites:
            check_name(name, "sites")
        job = effective_job(job, sites)
        self.job = job = job if initial_model is None else with_weights(job, initial_model)
        self.sites = sites
        self.folder = folder
        self.costs = Costs()
        # Opened once for all rounds. Sites with many images have them in files, mapped into memory.
        self._data = open_sites(job, sites)
        self._chain = Chain(folder, job, id=job.chain or CHAIN, initial_model=initial_model, demo=on_demo(sites))
        if test is not None and job.train.validation:
            raise ConfigError(
                "train.validation: the server scores its own test set and has no validation images; leave it out.",
                code="config.conflict",
                key="train.validation",
            )
        if test is not None and job.federation.buffers == "local":
            raise ConfigError(
                "federation.buffers: local leaves nothing for the server to score; let sites do it.",
                code="config.conflict",
                key="federation.buffers",
            )
        self._work = Work(job, sites, folder, test)
        self._workers = min(workers, job.federation.sites_per_round or len(sites), len(sites))
        self._make_sites = make_sites

    def run(self, after_round: Callable[[GlobalState], None] = lambda state: None) -> GlobalState:
        """Run the remaining rounds and return the final state.

        Args:
            after_round: called with the new state once it is safe on disk.

        Raises:
            CheckpointError: the folder's checkpoint belongs to another configuration.
            FedMRError: a worker process ended, or too few replies of a round were usable.
        """
        state, started = self._chain.open(), time.perf_counter()
        try:
            # Giving freed memory back after every site would be most of what the runner costs.
            with kept_memory(), open_pool(self._work, self._workers, self._data, self._make_sites) as pool:
                transport = InProcess(self._work, pool, self.costs)
                steps = plan(self.job, score_rounds=self._work.test is not None)
                return run(steps, state, transport, self._chain, _listener(after_round))
        finally:
            self.costs.wall += time.perf_counter() - started
            self._chain.close()


class InProcess:
    """Carries messages to the sites of this machine, and to the server's test set where it has one."""

    in_order = True
    _PHASES: Mapping[str, str] = {VALIDATE: "score", HEAD: "head", SECURE: "secure"}

    def __init__(self, work: Work, pool: Pool, costs: Costs):
        self._work, self._pool, self._costs = work, pool, costs

    def sites(self, kind: str) -> list[str]:
        """Return all sites; for scoring the server alone, where it has a test set."""
        return [SERVER] if kind == VALIDATE and self._work.test is not None else sorted(self._work.sites)

    def ask(
        self, kind: str, message: Message, sites: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[tuple[str, Answer]]:
        """Let sites answer, one after the other or side by side."""
        started, waited = time.perf_counter(), self._pool.waited
        if sites == [SERVER] and self._work.test is not None:
            rows = parts_of_test(self._work.test, self._work.job.train.batch_size, self._pool.workers)
            parts = self._pool.each(score, rows, message)
            yield SERVER, encode_reply(VALIDATE, SiteReply(SERVER).with_statistic(SCORES, pooled(dict(parts))[0]))
        else:
            for name, answered in self._pool.each(partial(ask, kind=kind), sites, message):
                if kind == TRAIN:
                    self._costs.tasks += 1
                    if self._pool.workers == 1:
                        for phase, seconds in answered.spent.items():
                            self._costs.spent[phase] += seconds
                yield name, answered.answer
        if kind in self._PHASES:
            self._costs.spent[self._PHASES[kind]] += time.perf_counter() - started
        elif self._pool.workers > 1:
            self._costs.spent["wait"] += self._pool.waited - waited


def _listener(after_round: Callable[[GlobalState], None]) -> Callable[[Event], None]:
    """Return what logs refusals and runaway features, and reports finished rounds."""

    def hear(event: Event) -> None:
        if isinstance(event, Refused):
            _log.warning(refused_line(event.site, event.reason))
        elif isinstance(event, RoundDone):
            if warning := runaway_line(event.state.history):
                _log.warning(warning)
            after_round(event.state)

    return hear


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
