"""The runbook as it is printed, from the first kit to the renewed one, with the pages that go on from it.

One server, a relay, and three hospitals on this machine. Each terminal has its own folder, and variables of its own.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import yaml
from cryptography.hazmat.primitives import hashes

from fedmr_med.config import JobConfig
from fedmr_med.deploy.manifest import certificate
from fedmr_med.files import write_text
from fedmr_med.jobs.folder import write_job
from tests.helpers import REPOSITORY
from tests.helpers.documents import LEAVING, OF_A_FEDERATION, OFFICER, RELAYS, RUNBOOK, SITES, commands
from tests.helpers.federation import LEAD, RELAY, SERVER, free_port, kill_all, project_for, reachable, wait_for
from tests.helpers.kits import settle
from tests.helpers.pictures import write_csv, write_picture
from tests.helpers.simulator import clean_environment
from tests.helpers.small import small_job

pytestmark = [pytest.mark.federation, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(3000)]

NOT_RUN = {
    r"python3 -m venv|pip install": "needs a network",
    r"useradd|chown|systemctl": "needs root and systemd: tests/deploy/test_service_files.py reads the units",
    r"pytest": "is a test of this suite",
}
"""Commands that nobody runs here, and why."""

HOSPITALS, OTHER = ("msk", "rosendahl", "vienna-dias"), "rosendahl"
CLASSES, NEW = ("MEL", "NV", "BCC"), "SCC"
JOB = {
    "task": {"dataset": "own", "class_names": CLASSES, "transform": "plain", "preparation": None},
    "loss": {"name": "cross_entropy", "class_weights": "none"},
    "federation": {"rounds": 1, "min_sites": 2, "grace_seconds": 60, "timeout_seconds": 600, "max_deviation": None},
    "head": {"exchange": "last", "keep": True, "held_out": 0.3},
}


@dataclass
class Paper:
    """The printed commands of the pages, and which of them are still to be run."""

    left: dict[str, list[str]] = field(
        default_factory=lambda: {
            page: [line for line in commands(page) if not any(re.search(part, line) for part in NOT_RUN)]
            for page in OF_A_FEDERATION
        }
    )

    def take(self, page: str, beginning: str) -> str:
        """Cross out the first command of a page that begins so, and return it."""
        found = next((line for line in self.left[page] if line.startswith(beginning)), None)
        assert found is not None, f"{page} has no `{beginning}`"
        self.left[page].remove(found)
        return found


@dataclass
class Terminal:
    """Somebody's folder and variables; ``roots`` says where the folders of the pages are here."""

    paper: Paper
    folder: Path
    roots: Path
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, page: str, beginning: str, more: str = "", **words: str) -> str:
        """Run a printed command, with something appended and its placeholders filled in; return what it printed."""
        line = re.sub(r"(?<=[ =])/(?=secure\b|srv\b)", f"{self.roots}/", self.paper.take(page, beginning))
        for word, meant in words.items():
            line = re.sub(rf"\b{word}\b", meant, line)
        return self.type(f"{line} {more}")

    def type(self, line: str) -> str:
        """Run a command; where it changes the folder, or exports something, the next one starts from there."""
        if exported := re.fullmatch(r"export (\w+)=(\S+) *", line):
            self.variables[exported[1]] = exported[2]
            return ""
        paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"PATH": paths, "PYTHONPATH": str(REPOSITORY), "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5"}
        left = self.roots / "left"
        # Into files: a pipe stays open in a server or client that a command starts.
        with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
            done = subprocess.run(
                f"{line}\ncode=$?; pwd > {left}; exit $code",
                shell=True,
                cwd=self.folder,
                env=clean_environment(HOME=str(self.roots), **given, **self.variables),
                stdout=out,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                check=False,
            )
            out.seek(0)
            errors.seek(0)
            said = out.read()
            assert done.returncode == 0, (line, said[-3000:], errors.read()[-3000:])
        self.folder = Path(left.read_text().strip())
        return said


def site_file(site: str, table: str, images: Path) -> str:
    """Return the settings of a hospital with a table, where a person approves what is new."""
    policy = {"share_prototypes": True, "share_metrics": "per_class", "min_class_count": 1, "min_cell_count": 1}
    policy |= {"training": None, "approve": "new_settings" if site == "msk" else "always", "approval_minutes": 30}
    return str(
        yaml.safe_dump(
            {"data": {"source": "manifest", "root": str(images / site), "manifest": table}, "policy": policy}
        )
    )


def write_images(folder: Path) -> None:
    """Write pictures of three classes for each hospital; one has a fourth in its second table."""
    for site in HOSPITALS:
        rows = [(f"{number}.png", (*CLASSES, NEW)[number % 4], "test" if number % 3 == 0 else "train")
                for number in range(48)]  # fmt: skip
        for seed, (name, *_) in enumerate(rows):
            write_picture(folder / site / name, size=(32, 32), seed=seed)
        head = ("image", "label", "fold")
        write_csv(folder / site / "before.csv", head, [row for row in rows if row[1] != NEW])
        write_csv(folder / site / "after.csv", head, [row for row in rows if site == OTHER or row[1] != NEW])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The coordinator's copy of the repository, and images."""
    write_text(tmp_path / "provisioning" / "project.yml", project_for(HOSPITALS, behind=("msk",)))
    write_images(tmp_path / "images")
    files = {name: site_file(name, "before.csv", tmp_path / "images") for name in HOSPITALS}
    for name, text in files.items():
        write_text(tmp_path / "sites" / name / "site.yaml", text)
    once: JobConfig = small_job("fedavg", name="once", **JOB).override({"federation": {"rounds": 0}})
    for job in (small_job("fedmr", name="isic_fedmr", **JOB), once):
        write_job(job, tmp_path / "jobs" / job.name, files)
    try:
        yield tmp_path
    finally:
        kill_all(tmp_path)


def test_the_runbook_runs_as_printed(place: Path) -> None:
    paper, machines = Paper(), place / "srv" / "fedmr"

    def terminal(folder: Path) -> Terminal:
        return Terminal(paper, folder, place)

    coordinator, server, relay, msk = terminal(place), terminal(machines), terminal(machines), terminal(machines)
    coordinator.run(RUNBOOK, "fedmr-med --help")
    coordinator.run(RUNBOOK, "fedmr-med deploy provision", f"--host localhost --port {free_port()}")
    kits = place / "secure" / "federation" / "fedmr" / "prod_00"
    for name in (SERVER, RELAY, *HOSPITALS):
        shutil.copytree(kits / name, machines / name)
    shutil.copytree(kits / LEAD, place / "secure" / LEAD)

    for page, kit, below in ((RUNBOOK, server, RELAY), (RELAYS, relay, "msk")):
        for beginning in ("cd ", "fedmr-med site check", "startup/start.sh"):
            kit.run(page, beginning)
        wait_for(lambda below=below: reachable(machines / below), f"{below} finds what it connects to")
    msk.variables["EDITOR"] = "sed -i s/30/20/"  # minutes to wait for an approval
    for beginning in ("cd msk", "cp ", "$EDITOR", "fedmr-med site seal", "fedmr-med site check", "startup/start.sh"):
        msk.run(RUNBOOK, beginning)
    for name in HOSPITALS[1:]:
        settle(machines / name, site_file(name, "before.csv", place / "images"))
        terminal(machines / name).type("startup/start.sh")
    for name in HOSPITALS:
        wait_for(lambda kit=machines / name: registered(kit), f"{name} has registered with the server")
    other = terminal(machines / OTHER)

    coordinator.run(RUNBOOK, "export FEDMR_MED_KIT")
    chain = coordinator.run(RUNBOOK, "fedmr-med deploy submit").split()[-1]
    wait_for(lambda: (machines / "msk" / "approvals.jsonl").exists(), "the hospital is asked")
    assert chain in msk.run(RUNBOOK, "fedmr-med site jobs")
    msk.run(RUNBOOK, "fedmr-med site jobs try", ID=chain)
    msk.run(RUNBOOK, "fedmr-med site jobs --approve", ID=chain)
    assert "msk" in coordinator.run(RUNBOOK, "fedmr-med deploy status")
    coordinator.run(RUNBOOK, "fedmr-med deploy watch", CHAIN=chain)
    assert chain in coordinator.run(RUNBOOK, "fedmr-med deploy list")
    coordinator.run(RUNBOOK, "fedmr-med deploy download", CHAIN=chain)
    coordinator.run(RUNBOOK, "fedmr-med deploy dossier", CHAIN=chain)
    assert (place / "model" / "best_model.pt").exists()
    assert (place / "dossier" / "data-protection.md").exists()
    coordinator.run(RUNBOOK, "fedmr-med deploy log", KIT=str(place / "secure" / LEAD))
    head = re.findall(r"^head (\w+)", msk.run(RUNBOOK, "fedmr-med site audit"), re.MULTILINE)
    msk.run(RUNBOOK, "fedmr-med site audit", HASH=head[-1])

    msk.run(RUNBOOK, "touch shutdown.fl")
    wait_for(lambda: "it does not run" in msk.type("fedmr-med site health || true"), "the client is stopped")
    coordinator.run(RUNBOOK, "fedmr-med deploy withdraw", CHAIN=chain, HOSPITAL=OTHER)
    coordinator.run(RUNBOOK, "fedmr-med deploy abort", CHAIN=chain)
    look_after(msk, coordinator, machines)
    msk.type("fedmr-med site policy set --approve always")
    msk.run(RUNBOOK, "fedmr-med site check && startup/start.sh")

    wait_for(lambda: registered(msk.folder), "the renewed kit has registered")
    chain = extend_and_leave(coordinator, other, site_file(OTHER, "after.csv", place / "images"))
    for page in (OFFICER, SITES):
        for line in list(paper.left[page]):
            msk.run(page, line, KIT=str(msk.folder), ID=chain)
    without_travelling_keys(terminal(place / "apart"))
    assert not any(paper.left.values()), "a command that is printed and was not run"


def registered(kit: Path) -> bool:
    log = kit / "log.txt"
    return log.exists() and "Successfully registered client" in log.read_text()


def look_after(msk: Terminal, coordinator: Terminal, machines: Path) -> None:
    """Run what the runbook has for every day, and for later."""
    msk.type("cd ..")
    write_text(machines / "docker.yaml", "runtime: docker\nparent: {docker_image: example.org/fedmr-med:1}\n")
    msk.run(RUNBOOK, "nvflare deploy prepare")
    msk.run(RUNBOOK, "fedmr-med site seal --kit msk-docker")
    shutil.copytree(machines / "msk", machines / "site")
    for name in ("server", "site", "federation"):
        next_one = "tar -C /srv" if name != "federation" else "tar -C /secure"
        coordinator.run(RUNBOOK, next_one)
        assert list(coordinator.folder.glob(f"{name}-*.tgz"))
    coordinator.run(RUNBOOK, "fedmr-med deploy renew", "msk")
    shutil.copytree(coordinator.roots / "secure/federation/fedmr/prod_01/msk", machines / "msk-2027")
    msk.run(RUNBOOK, "cd msk-2027")


def extend_and_leave(coordinator: Terminal, other: Terminal, with_the_new_class: str) -> str:
    """Run the page on joining late and leaving, on a chain of one exchange; return that chain."""
    chain = coordinator.type("fedmr-med deploy submit jobs/once").split()[-1]
    coordinator.type(f"fedmr-med deploy watch {chain} --resume")
    settle(other.folder, with_the_new_class)
    coordinator.run(LEAVING, "fedmr-med jobs extend", CHAIN=chain, LEAD_KIT=str(coordinator.roots / "secure" / LEAD))
    coordinator.run(LEAVING, "fedmr-med deploy submit", "--watch", NAME_scc="once_scc")
    other.run(LEAVING, "fedmr-med site withdraw", CHAIN=chain)
    coordinator.run(LEAVING, "fedmr-med deploy withdraw", CHAIN=chain, HOSPITAL=OTHER)
    coordinator.run(LEAVING, "fedmr-med deploy download", CHAIN=chain)
    assert (coordinator.folder / "after" / "best_model.pt").exists()
    return chain


def without_travelling_keys(apart: Terminal) -> None:
    """Run the runbook's provisioning in which every key stays where it was made."""
    address = {"host": "fl.example.org", "fed_learn_port": 8002, "admin_port": 8002}
    profile = {"name": "fedmr", "scheme": "http", "connection_security": "mtls", "server": address}
    hospital = {"name": "msk", "type": "client", "org": "msk", "server": address}
    write_text(apart.folder / "profile.yml", yaml.safe_dump(profile))
    write_text(apart.folder / "msk.yaml", yaml.safe_dump({"name": "fedmr", "participants": [hospital]}))
    shutil.copy(apart.roots / "sites" / "msk" / "site.yaml", apart.folder)
    apart.run(RUNBOOK, "nvflare cert init")
    apart.run(RUNBOOK, "nvflare cert request")
    shutil.copy(apart.folder / "msk" / "msk.request.zip", apart.folder)  # it travels to the coordinator
    apart.run(RUNBOOK, "nvflare cert approve")
    fingerprint = certificate(apart.folder / "ca" / "rootCA.pem").fingerprint(hashes.SHA256()).hex(":").upper()
    apart.run(RUNBOOK, "nvflare package", FINGERPRINT=fingerprint)
    apart.run(RUNBOOK, "fedmr-med site lock")
