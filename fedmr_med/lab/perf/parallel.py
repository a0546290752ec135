"""What clients side by side are worth."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil

from fedmr_med.config import JobConfig
from fedmr_med.data.datasets import DATASETS
from fedmr_med.errors import FedMRError
from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.jobs.catalog import job_for
from fedmr_med.lab.datasets.synthetic import write_synthetic
from fedmr_med.lab.perf.measure import Figure
from fedmr_med.runner import Federation
from fedmr_med.server.state import GlobalState
from fedmr_med.sites import SiteConfig

WORKERS, BATCH = 2, 20

Moment = tuple[float, float, Mapping[int, float]]
"""Seconds so far: wall time, CPU time of the server's process, and of each worker process by its id."""


def parallel_figures(folder: Path, *, clients: int, updates: int, rounds: int, repetitions: int) -> list[Figure]:
    """Measure how much faster clients side by side are than one after the other, to the same model.

    Both run in turn. The first round of each is left out: workers start, and everything is opened, in it. By wall
    time, which is right on idle cores only, and by the critical path in CPU time, which neighbours hardly change.

    Raises:
        FedMRError: the two models are not the same bit for bit.
    """
    data = write_synthetic(DATASETS.get("fmnist"), folder / "data")
    changes = {"train.updates": updates, "train.batch_size": BATCH, "federation.rounds": rounds + 1}
    job = job_for("fmnist", "fedavg", split="iid", clients=clients, model="small_cnn", changes=changes)
    sites = benchmark_sites(clients, root=data, holds_test=False)
    walls, paths = [], []
    for repetition in range(repetitions):
        order = (1, WORKERS) if repetition % 2 == 0 else (WORKERS, 1)
        runs = {workers: _counted(job, sites, folder / f"{repetition}-{workers}", workers) for workers in order}
        (one, *alone), (two, *together) = runs[1], runs[WORKERS]
        check_equal(one, two)
        walls.append(alone[0] / together[0])
        paths.append(alone[1] / together[1])
    case = f"small_cnn, {clients} clients of {updates} updates of {BATCH} images, {rounds} rounds, {WORKERS} workers"
    compared = {
        "wall": (walls, "wall time of one process / of workers side by side, the same model bit for bit"),
        "cpu": (paths, "CPU time of one process / of the server and the busiest worker: on idle cores, wall time"),
    }
    return [Figure.of("parallel_speedup", kind, case, text, values) for kind, (values, text) in compared.items()]


def _counted(
    job: JobConfig, sites: Mapping[str, SiteConfig], folder: Path, workers: int
) -> tuple[GlobalState, float, float]:
    """Run a federation; return its model and what the rounds after the first took, see :func:`spent`."""
    moments: list[Moment] = []

    def note(state: GlobalState) -> None:
        busy = {child.pid: sum(child.cpu_times()[:2]) for child in psutil.Process().children()}
        moments.append((time.perf_counter(), time.process_time(), busy))

    state = Federation(job, sites, folder, workers=workers).run(note)
    return state, *spent(moments[0], moments[-1])


def spent(before: Moment, after: Moment) -> tuple[float, float]:
    """Return the wall time between two moments, and what it is on idle cores at most.

    That is the server's CPU time, then that of the worker with most of it. Alone, the server works for the clients too.
    """
    busiest = max((seconds - before[2].get(pid, 0.0) for pid, seconds in after[2].items()), default=0.0)
    return after[0] - before[0], after[1] - before[1] + busiest


def check_equal(one: GlobalState, other: GlobalState) -> None:
    """See that two runs made the same model.

    Raises:
        FedMRError: they did not, so that their times say nothing.
    """
    if one.model.keys() != other.model.keys() or any(
        not np.array_equal(one.model[name], other.model[name]) for name in one.model
    ):
        raise FedMRError("Two runs that are to be compared made different models.", code="perf.different-models")
