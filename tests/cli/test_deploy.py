"""``fedmr-med deploy``: what can be said without a running federation; the rest is in tests/e2e."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedmr_med.cli.deploy import app
from fedmr_med.deploy.acts import ACTS_FILE
from tests.helpers import REPOSITORY
from tests.helpers.kits import PROJECT, SITE


def test_provision_prints_where_the_kits_are(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text(PROJECT)
    (tmp_path / "sites" / "msk").mkdir(parents=True)
    (tmp_path / "sites" / "msk" / "site.yaml").write_text(SITE)
    options = ["--project", str(tmp_path / "project.yml"), "--sites", str(tmp_path / "sites"), "--json"]
    result = CliRunner().invoke(app, ["provision", "-w", str(tmp_path / "ws"), *options], catch_exceptions=False)
    content = json.loads(result.stdout)
    assert content["kits"] == ["lead@example.org", "msk", "server"]
    assert (Path(content["folder"]) / "msk" / "startup" / "start.sh").exists()


def test_the_coordinators_acts_are_a_journal(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text(PROJECT)
    (tmp_path / "sites" / "msk").mkdir(parents=True)
    (tmp_path / "sites" / "msk" / "site.yaml").write_text(SITE)
    options = [
        "--project",
        str(tmp_path / "project.yml"),
        "--sites",
        str(tmp_path / "sites"),
        "-w",
        str(tmp_path / "ws"),
    ]
    run("provision", *options)
    run("renew", *options, "msk")
    lines = run("log", str(tmp_path / "ws")).splitlines()
    assert [line.split()[2] for line in lines] == ["provision:", "provision:", "renew:"]
    assert "participants ['msk']" in lines[-1]
    path = tmp_path / "ws" / ACTS_FILE
    path.write_text(path.read_text().replace('"kits": "prod_01"', '"kits": "prod_09"', 1))
    assert "NOT INTACT" in run("log", str(tmp_path / "ws"), code=1)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.slow
def test_a_server_that_is_not_there_gives_a_message_and_code_2(provisioned: Path, tmp_path: Path) -> None:
    kit = str(provisioned / "lead@example.org")
    job = REPOSITORY / "jobs" / "isic_fedmr"
    command = [
        sys.executable,
        "-c",
        "from fedmr_med.cli import main; main()",
        "deploy",
        "submit",
        str(job),
        "--kit",
        kit,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert "fedmr-med: The server localhost:8002 does not answer" in done.stderr
    assert "Traceback" not in done.stderr
