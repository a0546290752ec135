"""Running jobs in FLARE's real simulator, as a user does: by its command."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from fedmr_med.config import JobConfig, load_job
from fedmr_med.jobs.folder import write_job
from fedmr_med.schema import dump_yaml
from fedmr_med.server.checkpoint import load_checkpoint
from fedmr_med.server.state import GlobalState, initial_state

RECORDER = Path(__file__).with_name("recorder.py")


@dataclass(frozen=True)
class Simulation:
    """A finished simulator run."""

    exit_code: int
    output: str
    workspace: Path

    @property
    def chain(self) -> Path:
        """The folder with checkpoint, best model and results."""
        return self.workspace / "server" / "chains" / "simulate_job"

    def state(self, job: JobConfig) -> GlobalState:
        """The final global state."""
        return load_checkpoint(self.chain / "checkpoint.pt", job, initial_state(job))


def clean_environment(**variables: str) -> dict[str, str]:
    """Return the environment of this process without the toolkit's own variables, and with those given."""
    return {key: value for key, value in os.environ.items() if not key.startswith("FEDMR_MED_")} | variables


def simulate(job_folder: Path, workspace: Path, *options: str, environment: dict[str, str] | None = None) -> Simulation:
    """Run ``nvflare simulator``; environment variables of the toolkit are only those given."""
    command = [Path(sys.executable).with_name("nvflare"), "simulator", job_folder, "-w", workspace, *options]
    done = subprocess.run(
        command,
        env=clean_environment(**(environment or {})),
        cwd=workspace.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Simulation(done.returncode, done.stdout, workspace)


def write_test_job(folder: Path, job: JobConfig, sites: dict[str, str]) -> Path:
    """Write a job whose sites carry the given ``site.yaml`` texts."""
    write_job(job, folder, sites)
    return folder


def record_wire(job_folder: Path, records: Path, delays: dict[str, float] | None = None) -> None:
    """Let every site of a job record its serialised train replies into ``records``."""
    records.mkdir()
    shutil.copy(RECORDER, job_folder / "app" / "custom")
    path = job_folder / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    arguments = {"folder": str(records), "delays": delays or {}}
    config["components"].append({"id": "recorder", "path": "recorder.WireRecorder", "args": arguments})
    path.write_text(json.dumps(config))


def change_job(folder: Path, *, demo: bool = False, **changes: object) -> JobConfig:
    """Override settings in a job folder, or those it has on the demo."""
    path = folder / "app" / "config" / "fedmr.yaml"
    job = load_job(path)
    job = (job.for_demo() if demo else job).override(changes)
    path.write_text(dump_yaml(job))
    return job


def without_floors(folder: Path) -> None:
    """Let the sites of a job folder train for any settings."""
    for path in folder.glob("app/config/sites/*/site.yaml"):
        content = yaml.safe_load(path.read_text())
        content["policy"]["training"] = None
        path.write_text(yaml.safe_dump(content))
