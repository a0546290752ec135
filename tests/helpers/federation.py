"""A provisioned federation on this machine: real server and hospital processes over loopback and mutual TLS."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from fedmr_med.config import JobConfig
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.deploy.connection import try_server
from fedmr_med.deploy.provision import provision
from fedmr_med.deploy.session import ServerLostError, Session
from fedmr_med.errors import DeployError
from fedmr_med.faults import FAULTS_VARIABLE
from fedmr_med.files import write_text
from fedmr_med.jobs.folder import write_job
from tests.helpers import REPOSITORY
from tests.helpers.kits import settle

SERVER, RELAY, LEAD, ADMIN = "server", "gateway", "lead@coordinator.org", "admin@coordinator.org"
OTHER = "lead@other.org"
OPTED_OUT = "share_prototypes: false, share_metrics: none"
PATIENCE = 400
FEDMR_MED = (sys.executable, "-c", "from fedmr_med.cli import main; main()")


class Federation:
    """Provisions, starts and kills; every process it starts is ended by :meth:`stop`.

    Args:
        folder: an empty folder.
        sites: the ``site.yaml`` of each hospital, by name.
        behind: the hospitals that reach the server through a relay.
    """

    def __init__(self, folder: Path, sites: dict[str, str], behind: tuple[str, ...] = ()):
        self.folder = folder
        self.sites = sites
        self.relays = (RELAY,) if behind else ()
        self.port = free_port()
        for name, text in sites.items():
            write_text(folder / "sites" / name / "site.yaml", text)
        write_text(folder / "project.yml", project_for(sites, behind))
        self.kits = provision(folder / "project.yml", folder / "workspace", folder / "sites", port=self.port)
        self._renewed: dict[str, Path] = {}
        for name, text in sites.items():
            settle(self.kit(name), text)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[subprocess.Popen[str]] = []

    def kit(self, name: str) -> Path:
        return self._renewed.get(name, self.kits / name)

    def renew(self, name: str) -> Path:
        """Let the coordinator renew a participant's certificate; the new kit is in use from now on. Return the old."""
        old = self.kit(name)
        options = ("--project", str(self.folder / "project.yml"), "--sites", str(self.folder / "sites"), "--json")
        workspace = str(self.folder / "workspace")
        done = self.run("deploy", "renew", "-w", workspace, name, *options)
        self._renewed[name] = Path(json.loads(done.stdout)["folder"]) / name
        return old

    def copy_kit(self, name: str, copy: str) -> str:
        """Copy a kit, as somebody would who sets up a second client with it.

        The copy does not find the server: two clients of one name throw each other out, and need a restart then.
        """
        shutil.copytree(self.kit(name), self.kit(copy))
        settings = self.kit(copy) / "startup" / "fed_client.json"
        settings.write_text(settings.read_text().replace(f":{self.port}", f":{free_port()}"))
        return copy

    def start(self, *names: str) -> None:
        """Start the server or hospitals, each in a session of its own, as a container would."""
        for name in names or (SERVER, *self.relays, *self.sites):
            (self.kit(name) / "faults").mkdir(exist_ok=True)
            environment = os.environ | {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(REPOSITORY),
                "OMP_NUM_THREADS": "1",
                FAULTS_VARIABLE: str(self.kit(name) / "faults"),
                "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5",
            }
            log = (self.folder / f"{name}.log").open("ab")
            # FLARE's client gives up after 15 s, which a busy machine may need; its own start.sh starts it again too.
            script = str(self.kit(name) / "startup" / "sub_start.sh")
            command = ["bash", "-c", 'until bash "$0" --once; do sleep 1; done', script]
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """Kill -9 a server or hospital with all its job processes, as a power cut would."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)  # the session that start() made
        for victim in self.job_processes(name):
            kill_process(victim)
        process.wait(timeout=30)

    def job_processes(self, name: str) -> list[int]:
        """Return the ids of the processes that run jobs for a server or hospital."""
        marks = ("worker_process", "runner_process")
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if (line := " ".join(process.info["cmdline"] or ())) and str(self.kit(name)) in line
            if any(mark in line for mark in marks)
        ]

    def stop(self) -> None:
        """End every process of this federation."""
        for watcher in self._watchers:
            watcher.kill()
        for name in list(self._processes):
            self.kill(name)
        kill_all(self.folder)

    def arm(self, name: str, point: str) -> None:
        """Let the next process of a server or hospital that reaches ``point`` stop there."""
        (self.kit(name) / "faults" / f"{point}.reached").unlink(missing_ok=True)
        (self.kit(name) / "faults" / point).touch()

    def wait_reached(self, name: str, point: str) -> None:
        """Wait until a process stands at an armed point."""
        wait_for(lambda: (self.kit(name) / "faults" / f"{point}.reached").exists(), f"{name} at {point}")

    def release_all(self) -> None:
        """Disarm every point that is still armed."""
        for path in self.folder.glob("workspace/*/prod_*/*/faults/*"):
            path.unlink(missing_ok=True)

    def release(self, name: str, point: str) -> None:
        """Let a stopped process go on."""
        (self.kit(name) / "faults" / point).unlink()

    def cli(self, *arguments: str, kit: str = LEAD, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``fedmr-med`` with a participant's kit and check its exit code."""
        return self.run(*arguments, "--kit", str(self.kit(kit)), code=code)

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``fedmr-med`` and check its exit code."""
        command = [*FEDMR_MED, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == code, f"{arguments} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def submit(
        self, job: JobConfig, *options: str, sites: tuple[str, ...] = (), initial_model: Path | None = None
    ) -> str:
        """Submit a job as the lead; return the chain."""
        folder = self.write_job(job, sites=sites, initial_model=initial_model)
        return str(json.loads(self.cli("deploy", "submit", str(folder), "--json", *options).stdout)["chain"])

    def watching(self, chain: str, *options: str, kit: str = LEAD) -> subprocess.Popen[str]:
        """Start to watch a chain in the background."""
        command = [*FEDMR_MED, "deploy", "watch", chain, "--json", *options, "--kit", str(self.kit(kit))]
        log = (self.folder / f"watch-{chain}.log").open("ab")
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._watchers.append(watcher)
        return watcher

    def as_person(self, code: str, kit: str = LEAD) -> dict[str, Any]:
        """Run a line of Python with an open ``session`` and the functions below; return what it calls ``done``."""
        program = f"from {__name__} import *\nwith Session(Path({str(self.kit(kit))!r})) as session:\n    {code}\n"
        program += "print(json.dumps(done), flush=True)\nos._exit(0)"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def wait_connected(self) -> None:
        """Wait until all hospitals are connected to the server."""
        self.as_person(f"done = until_connected(session, {len(self.sites)})")

    def watched(self, chain: str) -> str:
        """Return what the watch commands of a chain have said so far."""
        return (self.folder / f"watch-{chain}.log").read_text()

    def logins(self, name: str) -> int:
        """Return how often a hospital has registered with the server."""
        return (self.folder / f"{name}.log").read_text().count("Successfully registered client")

    def checkpoint(self, chain: str) -> Path:
        return self.kit(SERVER) / "chains" / chain / "checkpoint.pt"

    def write_job(
        self, job: JobConfig, folder: str = "job", sites: tuple[str, ...] = (), initial_model: Path | None = None
    ) -> Path:
        """Write a job folder for the hospitals of this federation."""
        path = self.folder / folder / job.name
        write_job(job, path, {name: self.sites[name] for name in sites or self.sites}, initial_model=initial_model)
        return path


def project_for(sites: Iterable[str], behind: Iterable[str] = ()) -> str:
    """Return the shipped project file with these hospitals alone, a second lead, and a relay before some of them."""
    project = yaml.safe_load((REPOSITORY / "provisioning" / "project.yml").read_text())
    project["participants"] = [
        entry for entry in project["participants"] if entry["type"] != "client" or entry["name"] in sites
    ]
    project["participants"].append({"name": OTHER, "type": "admin", "org": "other", "role": "lead"})
    if behind:
        listens = {"default_host": "localhost", "host_names": ["localhost"], "port": free_port()}
        project["participants"].append(
            {"name": RELAY, "type": "relay", "org": "coordinator", "listening_host": listens}
        )
        for entry in (entry for entry in project["participants"] if entry["name"] in behind):
            entry["connect_to"] = {"name": RELAY}
    return str(yaml.safe_dump(project))


def kill_all(folder: Path) -> None:
    """Kill every process that names a folder on its command line."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in part for part in process.info["cmdline"] or ()):
            kill_process(process.pid)


@contextmanager
def running(folder: Path, sites: dict[str, str], behind: tuple[str, ...] = ()) -> Iterator[Federation]:
    """Start a federation whose hospitals have all registered; end every process of it."""
    federation = Federation(folder, sites, behind)
    try:
        federation.start()
        for name in sites:
            wait_for(lambda name=name: federation.logins(name), f"{name} has registered with the server")
        yield federation
    finally:
        federation.stop()


def until_ended(session: Session, job: str) -> dict[str, Any]:
    """Wait for the end of a job, also while a busy server is slow to answer."""
    while True:
        with contextlib.suppress(ServerLostError):
            state = session.state(job)
            if state.status.startswith(("FINISHED", "FAILED")):
                return {"job": job, "status": state.status, "detail": state.detail}
        time.sleep(1)


def until_connected(session: Session, number: int) -> dict[str, Any]:
    """Wait for hospitals, and for a server that is still starting."""
    while True:
        with contextlib.suppress(ServerLostError):
            if len(session.hospitals()) >= number:
                return {}
        time.sleep(1)


def shell(session: Session, site: str) -> dict[str, Any]:
    """Try to list a hospital's settings with an administrator's shell command."""
    with session._talking() as connection:
        try:
            return {"answer": connection.ls_target(site, path="local")}
        except Exception as e:
            return {"answer": repr(e)}


# Lower than the defaults, so that a round of few steps and a job of one site are taken.
FLOORS = "{min_updates: 3, min_sites: 1}"


SHARING = "share_prototypes: true, min_class_count: 11, min_cell_count: 1, share_metrics: per_class"


def demo_site(name: str, sharing: str = SHARING) -> str:
    """Return the ``site.yaml`` of a hospital on generated pictures."""
    policy = f"{{{sharing}, training: {FLOORS}}}"
    return f"data: {{source: demo, center: {HOSPITALS.index(name)}}}\npolicy: {policy}\n"


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reachable(kit: Path) -> bool:
    """Say whether the server, or relay, of a kit answers."""
    try:
        try_server(kit)
    except DeployError:
        return False
    return True


def kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; fail saying what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)
