"""One run of a comparison: a job with its clients, and what is kept of it."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold
from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.demo import DEMO
from fedmr_med.evaluation.results import RunResult, RunSetup
from fedmr_med.jobs.benchmark import benchmark_sites, with_policies
from fedmr_med.lab.comparison.runs import OnProgress
from fedmr_med.lab.datasets.benchmark import load_test
from fedmr_med.models.job_network import build_network
from fedmr_med.report.progress import Progress
from fedmr_med.runner import Federation, open_sites
from fedmr_med.schema import Strict
from fedmr_med.server.state import GlobalState
from fedmr_med.site.client_state import CLIENT_STATE
from fedmr_med.sites import SiteConfig


class Selection(Strict):
    """Which data of a dataset takes part, and who shares.

    Attributes:
        data: folder or file of the dataset; None reads ``FEDMR_MED_DATA``; ``demo`` is the demo of ISIC2019.
        fraction: share of the training data that is used.
        share: share of the sites that share their prototypes.
        absent: hospitals that do not take part, of a dataset whose hospitals hold their own data.
        opted_out: hospitals of such a dataset that share no prototypes.
        without_leaked: leave out test images of ISIC2019 whose lesion is in a train fold too.
        cross_validate: cross-validate ISIC2019 by lesion over so many parts of all images: a run scores the part that
            its seed names, counted around.
        held_out: share of each client's training data that is scored on in place of the test set; 0 trains on all.
    """

    data: Path | None = None
    fraction: float = Field(1.0, gt=0, le=1)
    share: float = Field(1.0, ge=0, le=1)
    absent: tuple[str, ...] = ()
    opted_out: tuple[str, ...] = ()
    without_leaked: bool = False
    cross_validate: int | None = Field(None, ge=2, le=20)
    held_out: float = Field(0.0, ge=0, le=0.5)


@dataclass(frozen=True)
class Run:
    """A job and the sites it is run with; runs of the same label differ in the seed only.

    ``parallel_clients`` work at the same time; nothing of the result depends on it.
    """

    label: str
    job: JobConfig
    clients: int
    selection: Selection
    parallel_clients: int = 1

    @property
    def sites(self) -> dict[str, SiteConfig]:
        """The settings of the sites. The test set of a benchmark is the server's, unless sites have own layers."""
        chosen, seed = self.selection, self.job.seed
        dataset = DATASETS.get(self.job.task.dataset)
        if dataset.site_source is None:
            sites = benchmark_sites(
                self.clients,
                root=chosen.data,
                fraction=chosen.fraction,
                share=chosen.share,
                seed=seed,
                holds_test=self.job.federation.buffers == "local",
            )
        else:
            changes: dict[str, bool | int] = {"without_leaked": True} if chosen.without_leaked else {}
            if chosen.cross_validate:
                changes |= {"test_part": seed % chosen.cross_validate, "parts": chosen.cross_validate}
            sources = {
                name: dataset.site_source(name, chosen.data).model_copy(update=changes)
                for name in dataset.sites
                if name not in chosen.absent
            }
            sites = with_policies(sources, share=chosen.share, seed=seed, opted_out=chosen.opted_out)
        return {name: site.model_copy(update={"held_out": chosen.held_out}) for name, site in sites.items()}

    def test(self) -> Fold | None:
        """Return the test set at the server; sites with data, or layers, of their own score models themselves."""
        source = next(iter(self.sites.values())).data
        if source.source != "benchmark" or source.holds_test:
            return None
        return load_test(source, self.job.task, seed=self.job.seed, held_out=self.selection.held_out)

    @property
    def name(self) -> str:
        """Name of the run's folder: other settings, another folder."""
        chosen, root = self.selection, self.selection.data
        content = [self.job.model_dump(mode="json"), self.clients, chosen.fraction, chosen.share, *chosen.absent]
        content += ["opted out", *chosen.opted_out] if chosen.opted_out else []
        content += ["without leaked"] if chosen.without_leaked else []
        content += ["cross-validate", chosen.cross_validate] if chosen.cross_validate else []
        content += ["held out", chosen.held_out] if chosen.held_out else []
        place = "" if root is None else str(root if root == DEMO else root.resolve())
        digest = hashlib.blake2b(json.dumps([content, place], sort_keys=True).encode(), digest_size=5).hexdigest()
        return f"{self.job.method.name}-seed{self.job.seed}-{digest}"

    @property
    def title(self) -> str:
        """What progress and messages call it."""
        return f"{self.label}, seed {self.job.seed}"

    @property
    def steps(self) -> int:
        """The rounds of the run; the one exchange of a run without rounds is a step too."""
        return max(self.job.federation.rounds, 1)

    @property
    def result_type(self) -> type[RunResult]:
        """The model of its result."""
        return RunResult

    def setup(self) -> RunSetup:
        """Return what the run is, for its entry in ``results.json``."""
        job = self.job
        return RunSetup(
            dataset=job.task.dataset,
            split=job.task.split,
            method=job.method.name,
            label=self.label,
            seed=job.seed,
            name=job.name,
            options=job.method.options,
            model=job.model.name,
            clients=self.clients,
            clients_per_round=job.federation.sites_per_round or self.clients,
            fraction=self.selection.fraction,
            share=self.selection.share,
            train=job.train.model_dump(mode="json"),
            buffers=job.federation.buffers,
            held_out=self.selection.held_out,
            demo=self.selection.data == DEMO,
        )

    def execute(self, folder: Path, on_progress: OnProgress) -> RunResult:
        """Do the run, or the rest of it, and return its entry in ``results.json``."""

        def after_round(state: GlobalState) -> None:
            pooled = state.history.evaluations[-1].pooled if state.history.evaluations else None
            accuracy = pooled.accuracy if pooled else None
            on_progress(Progress(state.round, 1, "" if accuracy is None else f"accuracy {accuracy:.3f}"))

        federation = Federation(self.job, self.sites, folder, test=self.test(), workers=self.parallel_clients)
        state = federation.run(after_round)
        if not state.round:
            on_progress(Progress(1, 1))
        return RunResult.of(
            self.setup(),
            state.history,
            engine_ms_per_task=federation.costs.engine_ms_per_task if federation.costs.tasks else None,
            kept_bytes=kept_bytes(folder / CLIENT_STATE),
        )

    def failed(self, error: str) -> RunResult:
        """See :class:`fedmr_med.lab.comparison.runs.Run`."""
        return RunResult.failed(self.setup(), error)

    def clean_up(self, folder: Path) -> None:
        """Remove what the clients keep: with a large network and many of them most of the disk. The model stays."""
        shutil.rmtree(folder / CLIENT_STATE, ignore_errors=True)


def check(runs: Iterable[Run]) -> None:
    """Refuse runs that cannot work before any of them starts: unknown networks, missing data, empty clients."""
    networks, partitions = set(), set()
    for run in sorted(runs, key=lambda run: run.job.seed):
        network = run.job.model.model_dump_json() + str(run.job.task.num_classes)
        if network not in networks:
            build_network(run.job, pretrained=True)
            networks.add(network)
        data = (run.job.task, run.job.federation, run.job.seed, run.clients, run.selection)
        if data not in partitions:
            open_sites(run.job, run.sites)
            partitions.add(data)


def kept_bytes(folder: Path) -> int:
    """Return the size of the arrays that the client with the most keeps from one round to the next."""
    newest = (max(site.rglob("*.npz"), key=lambda path: path.name, default=None) for site in folder.glob("*"))
    sizes = []
    for path in filter(None, newest):
        with np.load(path, allow_pickle=False) as arrays:
            sizes.append(sum(array.nbytes for array in arrays.values()))
    return max(sizes, default=0)
