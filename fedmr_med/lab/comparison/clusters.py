"""Runs on a cluster, of Slurm or Ray. All its machines have to see the folder of the comparison."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedmr_med.errors import ConfigError
from fedmr_med.lab.comparison.following import follow
from fedmr_med.lab.comparison.runs import R, Run, perform_there
from fedmr_med.process import available_cores
from fedmr_med.report.progress import Progress
from fedmr_med.schema import Strict

LOGS = "slurm"
LOCAL = "local"
_OBJECT_STORE = 100 * 2**20  # bytes; only settings and results pass through it


class SlurmOptions(Strict):
    """What a run asks of Slurm.

    Attributes:
        cluster: ``slurm``, or one of submitit's two ways to try it without: ``local``, a process for each run, and
            ``debug``, this process.
        partition, account, qos: as for ``sbatch``.
        cpus, gpus, memory_gb: of each run; None leaves the memory to the partition.
        hours: after which a run is stopped and queued again, up to ``requeues`` times; it resumes.
        parallel: runs at the same time.
    """

    cluster: Literal["slurm", "local", "debug"] = "slurm"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    memory_gb: float | None = Field(None, gt=0)
    hours: float = Field(24, gt=0)
    requeues: int = Field(20, ge=0)
    parallel: int = Field(256, ge=1)


class RayOptions(Strict):
    """What a run asks of Ray.

    Attributes:
        address: of the cluster, as for ``ray.init``; ``local`` starts one with the cores of this machine.
        cpus, gpus: of each run.
    """

    address: str = LOCAL
    cpus: int = Field(1, ge=1)
    gpus: float = Field(0, ge=0)


@dataclass(frozen=True)
class Slurm:
    """The launcher for Slurm: all runs as one job array, through submitit; ``threads`` is for each process."""

    options: SlurmOptions
    threads: int = 1

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs; a ConfigError says that submitit is not installed, or this machine has no Slurm."""
        submitit, logs = _imported("slurm", "submitit"), folder.parent / LOGS
        executor, kinds = self._executor(submitit, logs), submitit.core.utils

        def submit(chosen: Sequence[Run[R]]) -> list[Any]:
            with executor.batch():
                return [executor.submit(_Resumable(self.threads), run, folder.resolve()) for run in chosen]

        def died(error: Exception) -> bool:
            return isinstance(error, kinds.UncompletedJobError) and not isinstance(error, kinds.FailedJobError)

        def cancel(job: Any) -> None:
            job.cancel(check=False)

        advice = f"--launcher-option memory_gb= asks for more memory, and {logs} has the logs."
        return follow(runs, folder, on_progress, submit, len(runs), died, advice, cancel)

    def _executor(self, submitit: Any, logs: Path) -> Any:
        options = self.options
        try:
            executor = submitit.AutoExecutor(logs, cluster=options.cluster, slurm_max_num_timeout=options.requeues)
        except RuntimeError as e:
            why = "there is no srun on this machine; --launcher-option cluster=local tries it without"
            raise ConfigError(f"--launcher slurm: {why}.", code="run.no-cluster", key="--launcher") from e
        executor.update_parameters(
            name="fedmr_med",
            timeout_min=math.ceil(60 * options.hours),
            cpus_per_task=options.cpus,
            gpus_per_node=options.gpus or None,
            mem_gb=options.memory_gb,
            slurm_partition=options.partition,
            slurm_account=options.account,
            slurm_qos=options.qos,
            slurm_array_parallelism=options.parallel,
        )
        return executor


@dataclass(frozen=True)
class _Resumable:
    """A run that submitit queues again, as it is, when it is preempted or its time is over."""

    threads: int

    def __call__(self, run: Run[R], folder: Path) -> R:
        return perform_there(run, folder, self.threads)

    def checkpoint(self, *arguments: Any) -> Any:
        """Tell submitit what to queue; what the run has reached is in its folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)


@dataclass(frozen=True)
class OnRay:
    """The launcher for Ray; ``threads`` is for each process of a run."""

    options: RayOptions
    threads: int = 1

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs; a ConfigError says that Ray is not installed, or the cluster cannot be reached."""
        with _connected(self.options) as ray:
            limits = {"num_cpus": self.options.cpus, "num_gpus": self.options.gpus, "max_retries": 0}
            remote, kinds = ray.remote(**limits)(perform_there), ray.exceptions
            references: dict[Any, Any] = {}

            def submit(chosen: Sequence[Run[R]]) -> list[Any]:
                sent = [remote.remote(run, folder.resolve(), self.threads) for run in chosen]
                futures = [reference.future() for reference in sent]
                references.update(zip(futures, sent, strict=True))
                return futures

            def died(error: Exception) -> bool:
                return isinstance(error, kinds.RayError) and not isinstance(error, kinds.RayTaskError)

            def cancel(future: Any) -> None:
                ray.cancel(references[future], force=True)

            advice = "--launcher-option cpus= leaves fewer of them on a node."
            return follow(runs, folder, on_progress, submit, len(runs), died, advice, cancel)


@contextmanager
def _connected(options: RayOptions) -> Iterator[Any]:
    """Connect to a cluster of Ray during the body, or to one that is started on this machine for the purpose."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    ray = _imported("ray", "ray")
    started: dict[str, Any] = {"num_cpus": max(available_cores(), options.cpus), "include_dashboard": False}
    started["object_store_memory"] = _OBJECT_STORE
    try:
        ray.init(options.address, log_to_driver=False, **(started if options.address == LOCAL else {}))
    except (ConnectionError, ValueError) as e:
        why = f"--launcher-option address={options.address}: {str(e).splitlines()[0]}"
        raise ConfigError(why, code="run.no-cluster", key="--launcher-option") from e
    try:
        yield ray
    finally:
        ray.shutdown()


def _imported(launcher: str, package: str) -> Any:
    """Return the package that a launcher needs."""
    try:
        return import_module(package)
    except ImportError as e:
        why = f"--launcher {launcher}: {package} is missing; pip install 'fedmr_med[{launcher}]'."
        raise ConfigError(why, code="package.missing", key="--launcher") from e
