"""Hostile jobs against an opted-out, locked hospital; the same jobs against an unlocked one leak.

The coordinator is hostile here: its server is unlocked and lets everything through. What counts is what the
hospitals let out, looked for in the bytes that reached the server.

- ``msk`` has opted out and has the kit as provisioned;
- ``rosendahl`` has opted out and lost its locks (any class, any code), but has filter and guard;
- ``vienna-dias`` has opted out in its site file and has nothing else: the positive control.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.deploy.kit import AUTHORIZATION, PRIVACY, RESOURCES
from fedmr_med.files import write_text
from fedmr_med.flare.audit import AUDIT_FILE
from fedmr_med.refusals import floor_code
from fedmr_med.schema import dump_yaml
from tests.e2e.test_federation import tiny_job
from tests.helpers.federation import ADMIN, SERVER, Federation, wait_for
from tests.helpers.hostile import CANARY, received

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.timeout(1500)]

LOCKED, GUARDED, OPEN = "msk", "rosendahl", "vienna-dias"
HOSTILE = "tests.helpers.hostile"
EVERYTHING = {"format_version": "1.0", "permissions": {"project_admin": "any", "lead": "any"}}

Change = Callable[[dict[str, Any], dict[str, Any], Path], None]


@pytest.fixture(scope="module")
def hostile(federation: Federation) -> Federation:
    """The federation with a hostile coordinator, all hospitals opted out."""
    for name in (GUARDED, OPEN):
        federation.cli("site", "policy", "set", "--share-prototypes", "off", kit=name)
        shown = json.loads(federation.cli("site", "policy", "show", "--json", kit=name).stdout)
        assert shown["restart_needed"], "the client still runs with the settings it started with"
    for name in (SERVER, GUARDED, OPEN):
        local = federation.kit(name) / "local"
        resources = json.loads((local / RESOURCES).read_text()) | {"class_allow_list": ["*"]}
        (local / RESOURCES).write_text(json.dumps(resources))
        (local / AUTHORIZATION).write_text(json.dumps(EVERYTHING))
        if name != GUARDED:
            (local / PRIVACY).unlink()
        federation.kill(name)
        federation.start(name)
    federation.wait_connected()
    return federation


def attack(federation: Federation, name: str, sites: tuple[str, ...], change: Change) -> dict[str, Any]:
    """Submit a spoiled job past the toolkit, as FLARE's own client would, and wait for its end."""
    folder = federation.write_job(tiny_job(rounds=1, sites=1).model_copy(update={"name": name}), sites=sites)
    (folder / "app" / "custom" / "README").unlink()
    (folder / "app" / "custom").rmdir()
    config = folder / "app" / "config"
    server = json.loads((config / "config_fed_server.json").read_text())
    server["components"].append({"id": "recorder", "path": f"{HOSTILE}.Recorder"})
    (config / "config_fed_server.json").write_text(json.dumps(server))
    meta = json.loads((folder / "meta.json").read_text())
    client = json.loads((config / "config_fed_client.json").read_text())
    change(meta, client, folder)
    (folder / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_client.json").write_text(json.dumps(client))
    return federation.as_person(f"done = until_ended(session, session.submit(Path({str(folder)!r})))", ADMIN)


def filter_puts_back(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
    client["task_result_filters"] = [{"tasks": ["train"], "filters": [{"path": f"{HOSTILE}.PutPrototypesBack"}]}]


def custom_code(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
    (folder / "app" / "custom").mkdir()
    (folder / "app" / "custom" / "evil.py").write_text("from tests.helpers.hostile import LeakyExecutor\n")
    client["executors"][0]["executor"]["path"] = "evil.LeakyExecutor"


def unknown_scope(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
    meta["scope"] = "open"
    filter_puts_back(meta, client, folder)


def leaked(federation: Federation, job: str, site: str) -> bool:
    return any(CANARY.tobytes() in message for message in received(federation.kit(SERVER), job, site))


def test_a_filter_that_puts_prototypes_back(hostile: Federation) -> None:
    alone = attack(hostile, "filter_locked", (LOCKED,), filter_puts_back)
    assert alone["status"] != "FINISHED:COMPLETED"
    assert received(hostile.kit(SERVER), alone["job"], LOCKED) == [], "the locked hospital did not even start it"
    both = attack(hostile, "filter_open", (GUARDED, OPEN), filter_puts_back)
    assert leaked(hostile, both["job"], OPEN), "the positive control leaks"
    assert received(hostile.kit(SERVER), both["job"], GUARDED), "the guarded hospital answered"
    assert not leaked(hostile, both["job"], GUARDED), "but its guard emptied the reply"
    line = json.loads((hostile.kit(GUARDED) / AUDIT_FILE).read_text().splitlines()[-1])
    assert (line["code"], line["bytes"]) in (("TASK_RESULT_FILTER_ERROR", 0), ("OK", 0))


@pytest.mark.parametrize(
    ("change", "reason"),
    [(custom_code, "BYOC not permitted"), (unknown_scope, "privacy scope 'open' is not allowed")],
)
def test_custom_code_and_an_unknown_scope_are_refused_and_the_others_go_on(
    hostile: Federation, change: Change, reason: str
) -> None:
    done = attack(hostile, change.__name__, (LOCKED, OPEN), change)
    assert any(line.startswith(LOCKED) and reason in line for line in done["detail"]), done
    assert received(hostile.kit(SERVER), done["job"], LOCKED) == []
    assert leaked(hostile, done["job"], OPEN), "the positive control leaks"
    assert done["status"] == "FINISHED:COMPLETED", "the other hospital goes on"


def test_a_job_that_starts_a_program(hostile: Federation) -> None:
    marks = {name: hostile.folder / f"{name}.was-here" for name in (LOCKED, OPEN)}

    def start_a_program(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
        script = f'touch "{hostile.folder}/$(basename "$PWD").was-here"'
        program = {"path": "subprocess.Popen", "args": {"args": ["bash", "-c", script]}}
        client["components"] = [{"id": "program", **program}]

    attack(hostile, "program", (LOCKED, OPEN), start_a_program)
    wait_for(marks[OPEN].exists, "the program ran at the unlocked hospital")
    assert not marks[LOCKED].exists()


def test_shell_commands_of_an_administrator(hostile: Federation) -> None:
    look = "done = shell(session, {!r})"
    assert "site.yaml" in hostile.as_person(look.format(OPEN), ADMIN)["answer"]
    assert "site.yaml" not in hostile.as_person(look.format(LOCKED), ADMIN)["answer"]


def test_a_job_of_configuration_alone_does_not_read_the_class_histogram_off_an_update(hostile: Federation) -> None:
    """One step on one batch that holds all images with learning rate 1 moves the bias by the share of each class."""
    steps = {"optimizer": "sgd", "updates": 1, "batch_size": 4096, "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}
    job = tiny_job("fedavg", rounds=1, sites=1).override({"name": "histogram", "train": steps})

    def ask(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
        write_text(folder / "app" / "config" / "fedmr.yaml", dump_yaml(job))

    done = attack(hostile, "histogram", (LOCKED,), ask)
    assert done["status"] != "FINISHED:COMPLETED", "no model came of it"
    replies = received(hostile.kit(SERVER), done["job"], LOCKED)
    assert all(len(reply) < 2000 for reply in replies), "a word, and no update"
    line = json.loads((hostile.kit(LOCKED) / AUDIT_FILE).read_text().splitlines()[-1])
    assert line["code"] == floor_code("batch_size")
    assert "policy.training" in line["reason"], "the hospital reads which floor it was"
