"""Runs as tasks of a Ray cluster, or of one that is started on this machine for the purpose."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from fedmr_med.errors import ConfigError
from fedmr_med.lab.comparison.files import Progress
from fedmr_med.lab.comparison.one_run import R, Run, perform_there
from fedmr_med.lab.comparison.schedule import follow
from fedmr_med.process import available_cores
from fedmr_med.schema import Strict

LOCAL = "local"
_OBJECT_STORE = 100 * 2**20  # bytes; only settings and results pass through it


class RayOptions(Strict):
    """What a run asks of the cluster.

    Attributes:
        address: of the cluster, as for ``ray.init``; ``local`` starts one with the cores of this machine.
        cpus, gpus: of each run.
    """

    address: str = LOCAL
    cpus: int = Field(1, ge=1)
    gpus: float = Field(0, ge=0)


@dataclass(frozen=True)
class OnRay:
    """The launcher for Ray. The folder of the comparison has to be seen by all nodes.

    Attributes:
        options: what a run asks for.
        threads: of each process of a run.
    """

    options: RayOptions
    threads: int = 1

    def __call__(self, runs: Sequence[Run[R]], folder: Path, on_progress: Callable[[int, Progress], None]) -> list[R]:
        """Perform all runs and return their results in order.

        Raises:
            ConfigError: Ray is not installed, or the cluster cannot be reached.
        """
        with _connected(self.options) as ray:
            limits = {"num_cpus": self.options.cpus, "num_gpus": self.options.gpus, "max_retries": 0}
            remote = ray.remote(**limits)(perform_there)
            submitted: list[Any] = []

            def submit(chosen: Sequence[Run[R]]) -> list[Any]:
                references = [remote.remote(run, folder.resolve(), self.threads) for run in chosen]
                submitted.extend(references)
                return [reference.future() for reference in references]

            def died(error: Exception) -> bool:
                kinds = ray.exceptions
                return isinstance(error, kinds.RayError) and not isinstance(error, kinds.RayTaskError)

            try:
                return follow(
                    runs,
                    folder,
                    on_progress,
                    submit,
                    capacity=len(runs),
                    died=died,
                    advice="--launcher-option cpus= leaves fewer of them on a node.",
                )
            except BaseException:
                for reference in submitted:
                    ray.cancel(reference, force=True)
                raise


@contextmanager
def _connected(options: RayOptions) -> Iterator[Any]:
    """Connect to a cluster during the body."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    try:
        import ray
    except ImportError as e:
        raise ConfigError(
            "--launcher ray: Ray is missing; pip install 'fedmr_med[ray]'.", code="package.missing", key="--launcher"
        ) from e
    started: dict[str, Any] = {"num_cpus": max(available_cores(), options.cpus), "include_dashboard": False}
    started["object_store_memory"] = _OBJECT_STORE
    try:
        ray.init(options.address, log_to_driver=False, **(started if options.address == LOCAL else {}))
    except (ConnectionError, ValueError) as e:
        raise ConfigError(
            f"--launcher-option address={options.address}: {str(e).splitlines()[0]}",
            code="run.no-cluster",
            key="--launcher-option",
        ) from e
    try:
        yield ray
    finally:
        ray.shutdown()
