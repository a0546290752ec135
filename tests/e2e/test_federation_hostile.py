"""Hostile jobs against an opted-out, locked hospital; the same jobs against an unlocked one leak.

The coordinator is hostile here: its server is unlocked and lets everything through. What counts is what the
hospitals let out, looked for in the bytes that reached the server.

- ``msk`` has opted out and has the kit as provisioned;
- ``rosendahl`` has opted out and lost its locks (any class, any code), but has filter and guard;
- ``vienna-dias`` has opted out in its site file and has nothing else: the positive control.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.shareable import Shareable

from fedmr_med.config import JobConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.deploy.kit import AUTHORIZATION, PRIVACY, RESOURCES
from fedmr_med.files import write_text
from fedmr_med.flare.audit import AUDIT_FILE
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import floor_code
from fedmr_med.schema import dump_yaml
from fedmr_med.server.checkpoint import load_checkpoint
from fedmr_med.server.state import initial_state
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.images import open_data
from fedmr_med.sites import load_site
from fedmr_med.wire.codec import Message
from tests.helpers import containers as messages
from tests.helpers.chains import history, tiny_job
from tests.helpers.federation import ADMIN, SERVER, Federation, wait_for
from tests.helpers.hostile import CANARY, received, replies
from tests.helpers.small import task_for, without

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


def attack(
    federation: Federation, name: str, sites: tuple[str, ...], change: Change, job: JobConfig | None = None
) -> dict[str, Any]:
    """Submit a spoiled job past the toolkit, as FLARE's own client would, and wait for its end."""
    job = job or tiny_job(rounds=1, sites=1)
    folder = federation.write_job(job.model_copy(update={"name": name}), sites=sites)
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
    [
        (custom_code, "BYOC not permitted"),
        pytest.param(unknown_scope, "privacy scope 'open' is not allowed", marks=pytest.mark.nightly),
    ],
)
def test_custom_code_and_an_unknown_scope_are_refused_and_the_others_go_on(
    hostile: Federation, change: Change, reason: str
) -> None:
    done = attack(hostile, change.__name__, (LOCKED, OPEN), change)
    assert any(line.startswith(LOCKED) and reason in line for line in done["detail"]), done
    assert received(hostile.kit(SERVER), done["job"], LOCKED) == []
    assert leaked(hostile, done["job"], OPEN), "the positive control leaks"
    assert done["status"] == "FINISHED:COMPLETED", "the other hospital goes on"


@pytest.mark.nightly
def test_a_job_that_starts_a_program(hostile: Federation) -> None:
    marks = {name: hostile.folder / f"{name}.was-here" for name in (LOCKED, OPEN)}

    def start_a_program(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
        script = f'touch "{hostile.folder}/$(basename "$PWD").was-here"'
        program = {"path": "subprocess.Popen", "args": {"args": ["bash", "-c", script]}}
        client["components"] = [{"id": "program", **program}]

    attack(hostile, "program", (LOCKED, OPEN), start_a_program)
    wait_for(marks[OPEN].exists, "the program ran at the unlocked hospital")
    assert not marks[LOCKED].exists()


@pytest.mark.nightly
def test_shell_commands_of_an_administrator(hostile: Federation) -> None:
    look = "done = shell(session, {!r})"
    assert "site.yaml" in hostile.as_person(look.format(OPEN), ADMIN)["answer"]
    assert "site.yaml" not in hostile.as_person(look.format(LOCKED), ADMIN)["answer"]


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_figures_that_no_server_can_use_stop_nobody(hostile: Federation) -> None:
    """Each of them once ended every job of its chain: in the sums, in the results, or in a checkpoint never read again.

    The site that sends them has neither filter nor guard. FedDyn keeps a state of every site in the checkpoint.
    """

    def spoil(meta: dict[str, Any], client: dict[str, Any], folder: Path) -> None:
        client["task_result_filters"] = [{"tasks": ["train"], "filters": [{"path": f"{HOSTILE}.SpoilFigures"}]}]

    job = tiny_job("feddyn", rounds=4, sites=1)
    done = attack(hostile, "figures", (GUARDED, OPEN), spoil, job)
    assert done["status"] == "FINISHED:COMPLETED", done
    rounds = history(hostile, done["job"])
    assert [set(record["sites"]) for record in rounds] == [{GUARDED}] * 4, "the honest site alone counts"
    reasons = [record["refused"][OPEN] for record in rounds]
    for reason, expected in zip(reasons, ("classification", "classification", "samples", "NaN"), strict=True):
        assert expected in reason, reasons
    state = load_checkpoint(hostile.checkpoint(done["job"]), job.override({"name": "figures"}), initial_state(job))
    assert state.round == 4


def test_no_count_of_a_withheld_class_can_be_derived_from_the_replies_of_a_chain(
    hostile: Federation, tmp_path: Path
) -> None:
    """Whatever a reply tells besides the update, data without a single image of the class would have told too.

    rosendahl shares what it may, with filter and guard; vienna-dias has opted out and asks for metrics per class,
    which its executor alone caps; msk has opted out of all and is locked.
    """
    hostile.cli("site", "policy", "set", "--share-prototypes", "on", kit=GUARDED)
    job = tiny_job(rounds=2, sites=3)
    done = attack(hostile, "counts", (LOCKED, GUARDED, OPEN), lambda meta, client, folder: None, job)
    assert done["status"] == "FINISHED:COMPLETED", done
    hidden = {}
    for name in (LOCKED, GUARDED, OPEN):
        site = load_site(hostile.kit(name) / "local" / "site.yaml")
        told = [figures(reply) for reply in replies(hostile.kit(SERVER), done["job"], name)]
        assert {kind for kind, _ in told} == {"train", "head", "validate"}
        others = list(without_small_classes(open_data(name, job, site), site.policy))
        hidden[name] = len(others)
        for number, other in enumerate(others):
            hospital = Hospital(name, job, site, tmp_path / f"{name}-{number}", site_data=other)
            task = task_for(initial_state(job), job)
            answers = (
                messages.encode_reply(hospital.train(task)),
                messages.encode_statistics(hospital.head_statistics(task)),
                messages.encode_validation(hospital.validate(task).scores),
            )
            without_any = dict(figures(reply) for reply in answers)
            assert all(found == without_any[kind] for kind, found in told), (name, told, without_any)
    assert hidden[GUARDED], "there is a class to hide"
    assert hidden[OPEN], "there is a class to hide"


def figures(reply: Shareable) -> tuple[str, dict[str, Any]]:
    """Return the kind of a reply, and all numbers of images it tells of: all but sums, update, losses and times."""
    is_scores = from_shareable(reply).data_kind == DataKind.METRICS
    message = messages.to_message(reply, "validate" if is_scores else "")
    if is_scores:
        assert message.parts.keys() <= {"scores"}
        return "validate", {"tested": of_tests(message)}
    shared = {
        part: {name: array.tolist() for name, array in arrays.items() if array.dtype.kind == "i"}
        for part, arrays in message.parts.items()
        if part not in ("model", "method", "scores")
    }
    if "model" not in message.parts:
        assert message.meta.keys() == {"round"}
        return "head", shared
    report = message.meta["report"] or {}
    assert report.keys() <= {"terms", "seconds", "images_total", "images_skipped"}
    others = {"wire", "toolkit", "settings", "round", "bytes_down", "exponents"}
    assert message.meta.keys() == others | {"samples", "scores", "report"}
    return "train", {
        "samples": message.meta["samples"],
        "shared": shared,
        "tested": of_tests(message),
        "images": (report.get("images_total"), report.get("images_skipped")),
    }


def of_tests(message: Message) -> Any:
    """Return the numbers of test images that scores tell of."""
    scores, arrays = message.meta["scores"], message.parts.get("scores")
    if scores is None or arrays is None:
        return scores and scores["samples"]
    counted = [arrays[name].sum(1).tolist() for name in ("confusion", "positives", "negatives")]
    return counted, scores["withheld"]


def without_small_classes(data: SiteData, policy: SitePolicy) -> Iterator[SiteData]:
    """Yield the data without each class that is withheld and has 1 to 10 images, in training or in test.

    Training images of an opted-out class become images of another one, since their rounded total does leave.
    """
    chosen = policy.chosen_classes(data.class_names)
    for label in range(data.num_classes):
        train, test = (int((fold.labels == label).sum()) for fold in (data.train, data.test))
        if 1 <= train <= 10:
            fold = without(data.train, label)
            others = [c for c in np.unique(data.train.labels) if c != label and not chosen[c]]
            if not chosen[label] and others:
                fold = Fold(data.train.items, np.where(data.train.labels == label, others[0], data.train.labels))
            yield dataclasses.replace(data, train=fold)
        if 1 <= test <= 10:
            yield dataclasses.replace(data, test=without(data.test, label))
