"""What FLARE's simulator costs: a run in it against the same run in the in-process runner."""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError
from fedmr_med.jobs.folder import write_job
from fedmr_med.lab.perf.federation import demo_hospitals
from fedmr_med.lab.perf.measure import Figure, children, interleaved, ratios
from fedmr_med.lab.perf.parallel import check_equal
from fedmr_med.process import available_cores
from fedmr_med.runner import Federation
from fedmr_med.schema import dump_yaml
from fedmr_med.server.chain import CHECKPOINT
from fedmr_med.server.checkpoint import load_checkpoint
from fedmr_med.server.state import GlobalState, initial_state


def simulator_figures(folder: Path, job: JobConfig, *, rounds: int, repetitions: int) -> list[Figure]:
    """Measure a run in FLARE's simulator against the same run in the in-process runner with a worker per core.

    The sites are those of ``make run``: the six hospitals on the demo, with a process each. Everything counts from
    start to end, processes and imports included. The job's head is left out, which a model of few rounds may have no
    use for. ``folder`` exists; each of the repetitions runs both once.

    Raises:
        FedMRError: the simulator failed, or the two models are not the same bit for bit.
    """
    job = job.override({"federation": {"rounds": rounds}, "head": {"exchange": "none"}})
    sites = demo_hospitals()
    write_job(job, folder / "job", {name: dump_yaml(site) for name, site in sites.items()})
    cores = available_cores()
    states: list[GlobalState] = []
    places = (folder / str(number) for number in itertools.count())
    candidates = {
        "simulator": lambda: states.append(_simulated(job, folder / "job", next(places), len(sites))),
        "runner": lambda: states.append(Federation(job, sites, next(places), workers=cores).run()),
    }
    spent = interleaved(candidates, repetitions, clock=_spent, warm_up=0)
    for state in states:
        check_equal(states[0], state)
    walls, totals = zip(*ratios(spent, "simulator", "runner"), strict=True)
    case = f"{job.name}, {job.model.name}, {len(sites)} demo hospitals, {rounds} rounds, {cores} cores"
    runner = "of the in-process runner with a worker per core, the same model bit for bit"
    return [
        Figure.of("simulator_overhead", "wall", case, f"wall time of `nvflare simulator` / {runner}", walls),
        Figure.of(
            "simulator_overhead", "cpu", case, f"CPU time of all processes of `nvflare simulator` / {runner}", totals
        ),
    ]


def _simulated(job: JobConfig, folder: Path, workspace: Path, threads: int) -> GlobalState:
    """Run a job folder in FLARE's simulator, by its command, and return the final state."""
    nvflare = Path(sys.executable).with_name("nvflare")
    command: list[str | Path] = [nvflare, "simulator", folder, "-w", workspace, "-t", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    checkpoint = workspace / "server" / "chains" / "simulate_job" / CHECKPOINT
    if done.returncode or not checkpoint.exists():
        raise FedMRError(f"FLARE's simulator failed: {done.stdout[-2000:]}", code="run.simulator")
    return load_checkpoint(checkpoint, job, initial_state(job))


def _spent() -> npt.NDArray[np.float64]:
    """Return the wall time, and the CPU time of this process and all that it started and that ended."""
    return np.array([time.perf_counter(), time.process_time() + children()])
