"""What FLARE's simulator costs: a run in it against the same run in the in-process runner."""

import resource
import subprocess
import sys
import time
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError
from fedmr_med.jobs.folder import write_job
from fedmr_med.lab.perf.federation import demo_hospitals
from fedmr_med.lab.perf.measure import Figure
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
    ratios = []
    for repetition in range(repetitions):
        place, order = (
            folder / str(repetition),
            ("simulator", "runner") if repetition % 2 == 0 else ("runner", "simulator"),
        )
        states, spent = {}, {}
        for kind in order:
            started = _spent()
            if kind == "simulator":
                states[kind] = _simulated(job, folder / "job", place / kind, len(sites))
            else:
                states[kind] = Federation(job, sites, place / kind, workers=cores).run()
            spent[kind] = [now - before for now, before in zip(_spent(), started, strict=True)]
        check_equal(states["simulator"], states["runner"])
        ratios.append([a / b for a, b in zip(spent["simulator"], spent["runner"], strict=True)])
    walls, totals = zip(*ratios, strict=True)
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


def _spent() -> tuple[float, float]:
    """Return the wall time, and the CPU time of this process and all that it started and that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime
