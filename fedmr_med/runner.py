"""A whole federation in one process, for studies with many clients.

It runs the same sites and the same server as a FLARE job, with the same messages between them. Only FLARE is left
out, and with it a process per client task. One network goes from site to site, replies are
added up as they come, and what a site keeps from round to round is on disk: memory does not grow with the number
of sites.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedmr_med import models
from fedmr_med.config import JobConfig
from fedmr_med.data import transforms
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.demo import effective_job
from fedmr_med.data.loading import Batches
from fedmr_med.errors import ConfigError, FedMRError, WireError
from fedmr_med.metrics import Scores, scores
from fedmr_med.network import build_network
from fedmr_med.process import kept_memory
from fedmr_med.report.lines import refused_line
from fedmr_med.server.aggregation import evaluation
from fedmr_med.server.chain import Chain
from fedmr_med.server.collect import ReplyCollector
from fedmr_med.server.head import HeadCollector, head_exchange, scored_head, wants_head, with_head
from fedmr_med.server.sampling import draw_sites
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.server.stopping import has_ended
from fedmr_med.site.hospital import Hospital, open_data
from fedmr_med.site.training import evaluate
from fedmr_med.sites import SiteConfig
from fedmr_med.wire.codec import decode_task, encode_reply, encode_task
from fedmr_med.wire.messages import SiteReply, TrainTask
from fedmr_med.wire.statistics import encode_statistics

SERVER, CLIENT_STATE = "server", "client_state"

_log = logging.getLogger(__name__)


@dataclass
class Costs:
    """Where the time of a run went, in seconds; a resumed run counts from its resumption.

    Attributes:
        tasks: train tasks answered.
        wall: time in all.
        spent: time of ``train``: local training, ``prototypes`` and
            ``head``: the passes for class sums and for the head, ``score``: scoring models.
    """

    tasks: int = 0
    wall: float = 0.0
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def engine_ms_per_task(self) -> float:
        """What the runner itself costs per train task, in milliseconds: all but training and scoring."""
        return 1e3 * (self.wall - sum(self.spent.values())) / max(self.tasks, 1)


class Federation:
    """Runs a job with all its sites in this process.

    Args:
        job: the job's settings; on the demo it has those for the demo.
        sites: settings of each site by name.
        folder: holds the checkpoint and what the sites keep. A run that was stopped resumes from there.
        test: a test set at the server, on which each round's model is scored. None lets the sites score what
            they receive, as in a FLARE job.

    Attributes:
        costs: where the time went.

    Raises:
        ConfigError: there are no sites, only some of them have images, or more replies are asked for than sites take
            part.
        DataError: a site has no usable data.
    """

    def __init__(self, job: JobConfig, sites: Mapping[str, SiteConfig], folder: Path, *, test: Fold | None = None):
        self.job = job = effective_job(job, sites)
        self.sites = sites
        self.folder = folder
        self.costs = Costs()
        # Opened once for all rounds. Sites with many images have them in files, mapped into memory.
        self._data = open_sites(job, sites)
        self._chain = Chain(folder, job)
        self._network = build_network(job)
        self._test_batches: Batches | None = None
        if test is not None:
            if job.federation.buffers == "local":
                raise ConfigError("federation.buffers: local leaves nothing for the server to score; let sites do it.")
            transform = transforms.build(job.task.transform, train=False, image_size=job.task.image_size)
            self._test_batches = Batches(test, transform, batch_size=job.train.batch_size, workers=job.train.workers)

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
            while not has_ended(self.job, state):
                started = time.perf_counter()
                state = self._round(state)
                if self._test_batches is not None or has_ended(self.job, state):
                    state = self._scored(state)
                self._chain.save(state)
                state = self._with_head(state)
                self.costs.wall += time.perf_counter() - started
                after_round(state)
            if not self.job.federation.rounds and not state.history.evaluations:
                state = self._scored(state)
                self._chain.save(state)
            # A run that was stopped between its last round and its head has no round left to make it in.
            state = self._with_head(state)
        finally:
            self._chain.close()
        return state

    def _round(self, state: GlobalState) -> GlobalState:
        """Ask this round's sites in the order of their names and add up their replies."""
        job = self.job
        collector = ReplyCollector(job, state, num_sites=len(self.sites), in_order=True)
        halved = job.federation.halved(state.parameters)
        task = decode_task(encode_task(train_task(state, job, self._chain_id), halved=halved))
        drawn = draw_sites(self.sites, job.federation.sites_per_round, seed=job.seed, round_number=state.round)
        for name in drawn:
            hospital = self._hospital(name)
            with _work_of(name):
                reply = self._reply(hospital, task)
            try:
                collector.offer(name, encode_reply(reply, halved=halved))
            except WireError as e:
                _log.warning(refused_line(name, str(e)))
            self.costs.tasks += 1
            for phase, seconds in hospital.spent.items():
                self.costs.spent[phase] += seconds
        return collector.close()

    def _reply(self, hospital: Hospital, task: TrainTask) -> SiteReply:
        """Let a site answer a task; a study of what bad replies do overrides it."""
        return hospital.train(task)

    def _scored(self, state: GlobalState) -> GlobalState:
        """Add the scores of the model in ``state`` to its history."""
        return state.scored(state.history.with_evaluation(evaluation(state.round, self._scores(state))))

    def _with_head(self, state: GlobalState) -> GlobalState:
        """Make, score and keep the closed-form head, where one is due."""
        if not wants_head(self.job, head_exchange(self.job), state):
            return state
        collector = HeadCollector(self.job, state)
        task = train_task(state, self.job, self._chain_id)
        started = time.perf_counter()
        for name in sorted(self.sites):
            with _work_of(name):
                reply = self._hospital(name).head_statistics(task)
            collector.offer(name, encode_statistics(reply))
        made = collector.close()
        self.costs.spent["head"] += time.perf_counter() - started
        if made is None:
            return state
        state = scored_head(made, self._scores(with_head(made)))
        self._chain.save(state)
        return state

    def _scores(self, state: GlobalState) -> dict[str, Scores]:
        """Score the model of ``state`` at the server, or at all sites."""
        started = time.perf_counter()
        if self._test_batches is None:
            results = self._site_scores(state)
        else:
            models.load_arrays(self._network, state.model)
            results = {SERVER: scores(evaluate(self._network, self._test_batches, self.job.task.num_classes))}
        self.costs.spent["score"] += time.perf_counter() - started
        return results

    def _site_scores(self, state: GlobalState) -> dict[str, Scores]:
        task = train_task(state, self.job, self._chain_id)
        results = {}
        for name in sorted(self.sites):
            with _work_of(name):
                score = self._hospital(name).validate(task)
            if score is not None:
                results[name] = score
        return results

    @property
    def _chain_id(self) -> str:
        return self.job.chain or "runner"

    def _hospital(self, name: str) -> Hospital:
        return Hospital(
            name,
            self.job,
            self.sites[name],
            self.folder / CLIENT_STATE / name,
            network=self._network,
            site_data=self._data[name],
        )


@contextmanager
def _work_of(site: str) -> Iterator[None]:
    """Keep freed memory while a site works, and put its name before what goes wrong."""
    try:
        with kept_memory():
            yield
    except FedMRError as e:
        raise FedMRError(f"Site {site}: {e}") from e


def open_sites(job: JobConfig, sites: Mapping[str, SiteConfig]) -> dict[str, SiteData]:
    """Return the data of all sites by name, or refuse a federation that cannot run.

    Raises:
        ConfigError: there are no sites, or more replies are asked for than sites take part.
        DataError: a site's data is missing, damaged, or less than two training samples.
    """
    asked = min(job.federation.sites_per_round or len(sites), len(sites))
    if not 1 <= job.federation.min_sites <= asked:
        raise ConfigError(f"federation.min_sites: {job.federation.min_sites} replies cannot come from {asked} sites.")
    return {name: open_data(name, job, site) for name, site in sites.items()}
