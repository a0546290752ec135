"""Where the runs of a comparison are done, and how many processes they have."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from fedmr_med.errors import ConfigError
from fedmr_med.lab.comparison.engine import Launcher
from fedmr_med.lab.comparison.local import Local
from fedmr_med.lab.comparison.on_ray import OnRay, RayOptions
from fedmr_med.lab.comparison.on_slurm import Slurm, SlurmOptions
from fedmr_med.process import asked_threads, available_cores
from fedmr_med.registry import check_known
from fedmr_med.schema import validated

LOCAL, SLURM, RAY = LAUNCHERS = ("local", "slurm", "ray")


@dataclass(frozen=True)
class Resources:
    """What a comparison may use.

    Attributes:
        launcher: one of :data:`LAUNCHERS`.
        workers: runs side by side on this machine; None uses the cores, 0 this process. The other launchers have
            queues of their own.
        parallel_clients: clients side by side within each run; None uses the cores that the runs leave idle.
        options: of the launcher, see :class:`fedmr_med.lab.comparison.on_slurm.SlurmOptions` and
            :class:`fedmr_med.lab.comparison.on_ray.RayOptions`.
    """

    launcher: str = LOCAL
    workers: int | None = None
    parallel_clients: int | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    def launch(self, pending: int) -> tuple[Launcher, int]:
        """Return the launcher for a number of runs, and how many clients of each work side by side.

        Raises:
            ConfigError: there is no such launcher, or it has no such option.
        """
        if self.launcher == LOCAL:
            if self.options:
                raise ConfigError(
                    f"--launcher-option {next(iter(self.options))}: slurm and ray have options.",
                    code="config.conflict",
                    key="--launcher-option",
                )
            workers, clients = processes(pending, self.workers, self.parallel_clients)
            return Local(workers), clients
        check_known(self.launcher, LAUNCHERS, "--launcher")
        if self.workers is not None:
            raise ConfigError(
                f"--workers: {self.launcher} has a queue of its own.", code="config.conflict", key="--workers"
            )
        threads = asked_threads() or 1
        launch: Slurm | OnRay
        if self.launcher == SLURM:
            launch = Slurm(
                validated(SlurmOptions, dict(self.options), "--launcher-option", section="--launcher-option"), threads
            )
        else:
            launch = OnRay(
                validated(RayOptions, dict(self.options), "--launcher-option", section="--launcher-option"), threads
            )
        return launch, self.parallel_clients or max(launch.options.cpus // threads, 1)


ALL_CORES = Resources()


def processes(pending: int, workers: int | None, parallel_clients: int | None) -> tuple[int, int]:
    """Return how many runs go side by side, and how many clients within each: one busy process for each core.

    Args:
        pending: runs to do.
        workers, parallel_clients: as asked for; None leaves it to the cores. Runs come first, since they have nothing
            to wait for.
    """
    cores = max(available_cores() // (asked_threads() or 1), 1)
    if workers is None:
        workers = max(min(cores // (parallel_clients or 1), pending), 1)
    if parallel_clients is None:
        parallel_clients = max(cores // workers, 1) if workers else 1
    return workers, parallel_clients
