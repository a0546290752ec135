"""Runs as jobs of a Slurm cluster, through submitit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedmr_med.errors import ConfigError
from fedmr_med.lab.comparison.files import Progress
from fedmr_med.lab.comparison.one_run import R, Run, perform_there
from fedmr_med.lab.comparison.schedule import follow
from fedmr_med.schema import Strict

LOGS = "slurm"


class SlurmOptions(Strict):
    """What a run asks of the cluster.

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


@dataclass(frozen=True)
class Slurm:
    """The launcher for Slurm: all runs as one job array. The folder of the comparison has to be seen by all nodes.

    Attributes:
        options: what a run asks for.
        threads: of each process of a run.
    """

    options: SlurmOptions
    threads: int = 1

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs and return their results in order.

        Raises:
            ConfigError: submitit is not installed, or this machine has no Slurm.
        """
        submitit, executor = self._executor(folder.parent / LOGS)
        task = _Resumable(self.threads)
        submitted: list[Any] = []

        def submit(chosen: Sequence[Run[R]]) -> list[Any]:
            with executor.batch():
                jobs = [executor.submit(task, run, folder.resolve()) for run in chosen]
            submitted.extend(jobs)
            return jobs

        def died(error: Exception) -> bool:
            kinds = submitit.core.utils
            return isinstance(error, kinds.UncompletedJobError) and not isinstance(error, kinds.FailedJobError)

        try:
            return follow(
                runs,
                folder,
                on_progress,
                submit,
                capacity=len(runs),
                died=died,
                advice=f"--launcher-option memory_gb= asks for more memory, and {folder.parent / LOGS} has the logs.",
            )
        except BaseException:
            for job in submitted:
                job.cancel(check=False)
            raise

    def _executor(self, logs: Path) -> tuple[Any, Any]:
        try:
            import submitit
        except ImportError as e:
            raise ConfigError(
                "--launcher slurm: submitit is missing; pip install 'fedmr_med[slurm]'.",
                code="package.missing",
                key="--launcher",
            ) from e
        options = self.options
        try:
            executor = submitit.AutoExecutor(logs, cluster=options.cluster, slurm_max_num_timeout=options.requeues)
        except RuntimeError as e:
            raise ConfigError(
                "--launcher slurm: there is no srun on this machine; --launcher-option cluster=local tries it without.",
                code="run.no-cluster",
                key="--launcher",
            ) from e
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
        return submitit, executor


class _Resumable:
    """A run that submitit queues again, as it is, when it is preempted or its time is over."""

    def __init__(self, threads: int):
        self.threads = threads

    def __call__(self, run: Run[R], folder: Path) -> R:
        return perform_there(run, folder, self.threads)

    def checkpoint(self, *arguments: Any) -> Any:
        """Tell submitit what to queue; what the run has reached is in its folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)
