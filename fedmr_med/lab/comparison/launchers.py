"""Where the runs of a comparison are done, and how many processes they have."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.errors import ConfigError
from fedmr_med.lab.comparison.clusters import OnRay, RayOptions, Slurm, SlurmOptions
from fedmr_med.lab.comparison.engine import Launcher
from fedmr_med.lab.comparison.following import follow
from fedmr_med.lab.comparison.runs import R, Run, perform
from fedmr_med.process import asked_threads, available_cores, set_threads
from fedmr_med.registry import check_known
from fedmr_med.report.progress import Progress
from fedmr_med.runner.workers import worker_pool
from fedmr_med.schema import validated

LOCAL, SLURM = "local", "slurm"
LAUNCHERS = (LOCAL, SLURM, "ray")


@dataclass(frozen=True)
class Local:
    """The launcher for one machine.

    Attributes:
        workers: processes to use; 0 does one run after the other in this process.
        threads: of each of them; ``OMP_NUM_THREADS`` wins.
    """

    workers: int
    threads: int = 1

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs and return their results in order."""
        if not self.workers:
            set_threads(default=self.threads)
            return [perform(run, folder, partial(on_progress, number)) for number, run in enumerate(runs)]
        # Each worker is a pool of its own: the death of one breaks no other.
        idle: list[ProcessPoolExecutor] = []
        slots = itertools.count()

        def start(run: Run[R]) -> Future[R]:
            if not idle:
                idle.append(stack.enter_context(worker_pool(1, threads=self.threads, first_slot=next(slots))))
            pool = idle.pop()
            future = pool.submit(perform, run, folder)
            future.add_done_callback(lambda ended: None if _died(ended) else idle.append(pool))
            return future

        def submit(chosen: Sequence[Run[R]]) -> list[Future[R]]:
            return [start(run) for run in chosen]

        def died(error: Exception) -> bool:
            return isinstance(error, BrokenProcessPool)

        with ExitStack() as stack:
            return follow(runs, folder, on_progress, submit, self.workers, died, "fewer --workers need less memory.")


def _died(future: Future[R]) -> bool:
    return future.cancelled() or isinstance(future.exception(), BrokenProcessPool)


@dataclass(frozen=True)
class Resources:
    """What a comparison may use.

    Attributes:
        launcher: one of :data:`LAUNCHERS`.
        workers: runs side by side on this machine; None uses the cores, 0 this process. The other launchers have
            queues of their own.
        parallel_clients: clients side by side within each run; None uses the cores that the runs leave idle.
        options: of the launcher, see :class:`SlurmOptions` and :class:`RayOptions`.
    """

    launcher: str = LOCAL
    workers: int | None = None
    parallel_clients: int | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    def launch(self, pending: int) -> tuple[Launcher, int]:
        """Return the launcher for ``pending`` runs, and how many clients of each work side by side.

        Raises:
            ConfigError: there is no such launcher, or it has no such option.
        """
        where = "--launcher-option"
        if self.launcher == LOCAL:
            if self.options:
                why = f"{where} {next(iter(self.options))}: slurm and ray have options."
                raise ConfigError(why, code="config.conflict", key=where)
            workers, clients = processes(pending, self.workers, self.parallel_clients)
            return Local(workers), clients
        check_known(self.launcher, LAUNCHERS, "--launcher")
        if self.workers is not None:
            why = f"--workers: {self.launcher} has a queue of its own."
            raise ConfigError(why, code="config.conflict", key="--workers")
        threads, options = asked_threads() or 1, dict(self.options)
        launch: Slurm | OnRay
        if self.launcher == SLURM:
            launch = Slurm(validated(SlurmOptions, options, where, section=where), threads)
        else:
            launch = OnRay(validated(RayOptions, options, where, section=where), threads)
        return launch, self.parallel_clients or max(launch.options.cpus // threads, 1)


ALL_CORES = Resources()


def processes(pending: int, workers: int | None, parallel_clients: int | None) -> tuple[int, int]:
    """Return how many runs go side by side, and how many clients within each: one busy process for each core.

    Where nothing is asked for, runs come first, since they have nothing to wait for.
    """
    cores = max(available_cores() // (asked_threads() or 1), 1)
    if workers is None:
        workers = max(min(cores // (parallel_clients or 1), pending), 1)
    if parallel_clients is None:
        parallel_clients = max(cores // workers, 1) if workers else 1
    return workers, parallel_clients
