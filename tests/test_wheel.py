"""What a hospital installs: the wheel and the dependencies it declares, without an extra and without the lab."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers import REPOSITORY

pytestmark = pytest.mark.slow


def declared(root: Distribution) -> dict[str, Distribution]:
    """Return the installed distributions that a distribution needs without its extras, and those that they need."""
    found: dict[str, Distribution] = {}
    waiting: list[tuple[Distribution, frozenset[str]]] = [(root, frozenset())]
    seen = set()
    while waiting:
        dist, extras = waiting.pop()
        for text in dist.requires or []:
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *extras)]
            if requirement.marker is not None and not any(map(requirement.marker.evaluate, environments)):
                continue
            name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                found[name] = distribution(name)
                waiting.append((found[name], wanted))
    return found


def link(dist: Distribution, folder: Path) -> None:
    """Put what a distribution installed into another folder of packages, by links."""
    tops = {file.parts[0] for file in dist.files or []} - {"..", "__pycache__"}
    for top in tops:
        if not (folder / top).exists():
            (folder / top).symlink_to(dist.locate_file(top))


def apart() -> dict[str, str]:
    """Return environment variables that lead neither to the repository nor to the environment of the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, without ``fedmr_med/lab``, and with what the wheel says it needs."""
    folder = tmp_path_factory.mktemp("hospital")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(REPOSITORY / "fedmr_med", source / "fedmr_med", ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=source, check=True, capture_output=True)
    environment = folder / "venv"
    venv.create(environment)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], env=apart(), check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    shutil.rmtree(packages / "fedmr_med" / "lab")
    (metadata,) = packages.glob("fedmr_med-*.dist-info")
    for dist in declared(Distribution.at(metadata)).values():
        link(dist, packages)
    return environment


def run(hospital: Path, program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the hospital's environment."""
    command = [str(hospital / "bin" / program), *arguments]
    return subprocess.run(command, cwd=folder, env=apart(), capture_output=True, text=True, timeout=300, check=False)


def test_with_what_is_declared_and_no_more_a_client_can_start(hospital: Path, tmp_path: Path) -> None:
    names = ("torch", "fedmr_med", "ray", "submitit", "pooch", "sklearn", "fedmr_med.lab")
    code = "import fedmr_med.flare.executor; from importlib.util import find_spec; "
    code += f"print(*[name for name in {names} if find_spec(name)])"
    assert run(hospital, "python", "-c", code, folder=tmp_path).stdout.split() == ["torch", "fedmr_med"]


def test_its_commands_work_and_those_of_the_lab_say_what_they_need(hospital: Path, tmp_path: Path) -> None:
    assert run(hospital, "fedmr-med", "site", "check", "--help", folder=tmp_path).returncode == 0
    assert "bench" in run(hospital, "fedmr-med", "--help", folder=tmp_path).stdout
    for command in (["bench", "--dataset", "fmnist"], ["privacy", "audit", "site.yaml"], ["data", "download", "svhn"]):
        done = run(hospital, "fedmr-med", *command, folder=tmp_path)
        assert done.returncode == 2
        assert "pip install 'fedmr-med[lab]'" in done.stderr


def test_a_benchmark_dataset_without_the_lab_is_refused_by_name(hospital: Path, tmp_path: Path) -> None:
    done = run(hospital, "fedmr-med", "jobs", "write", "--dataset", "cifar10", folder=tmp_path)
    assert done.returncode == 2
    assert "fedmr_med.lab" in done.stderr


@pytest.mark.nightly
def test_the_demo_runs_and_its_model_predicts_and_is_exported(hospital: Path, tmp_path: Path) -> None:
    for command in (
        ["demo", "--rounds", "1", "--out", "demo"],
        ["predict", "demo/best_model.pt", "demo/images", "-o", "predictions.csv"],
        ["export", "demo/best_model.pt", "-o", "bundle"],
    ):
        done = run(hospital, "fedmr-med", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    onnx = run(hospital, "fedmr-med", "export", "demo/best_model.pt", "-o", "with-onnx", "--onnx", folder=tmp_path)
    assert (onnx.returncode, (tmp_path / "with-onnx").exists()) == (2, False), "it says what it needs before it writes"
    assert "fedmr-med[export]" in onnx.stderr
    assert "FedMR, one opts out" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 1 + 12
    assert (tmp_path / "bundle" / "configs" / "metadata.json").is_file()


def test_a_federation_starts_from_the_wheel_alone(hospital: Path, tmp_path: Path) -> None:
    for command in (
        ["init"],
        ["jobs", "write", "--dataset", "isic2019", "--name", "first"],
        ["deploy", "provision", "-w", "federation"],
    ):
        done = run(hospital, "fedmr-med", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "jobs" / "first" / "app" / "config" / "sites" / "msk" / "site.yaml").is_file()
    assert "msk" in {path.name for path in (tmp_path / "federation" / "fedmr" / "prod_00").iterdir()}
    again = run(hospital, "fedmr-med", "init", folder=tmp_path)
    assert again.returncode == 2, "nobody's files are overwritten"
