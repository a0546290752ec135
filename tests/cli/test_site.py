"""``fedmr-med site``: lines for people, JSON for programs, exit codes for scripts."""

import json
import re
import shutil
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import torch
import yaml
from typer.testing import Result

from fedmr_med.errors import PolicyError
from fedmr_med.files import journal
from fedmr_med.flare.audit import AUDIT_FILE, AuditLog
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import floor_code
from fedmr_med.schema.keys import Key, keys
from fedmr_med.server.state import weights_sent, with_weights
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook
from fedmr_med.sites import load_site
from tests.helpers.command_line import call
from tests.helpers.errors import raises
from tests.helpers.site_at_work import SHARES_ALL, SiteAtWork, full_statistics
from tests.helpers.small import small_job

Kit = tuple[str, Path]
CHECK = ("check", "--no-data", "--no-connection")


def run(*words: object, code: int = 0) -> Result:
    return call("site", *words, code=code)


@pytest.fixture
def kit(kits: Path) -> Kit:
    """Option that names the hospital's kit, which may be changed."""
    return ("--kit", kits / "msk")


def test_check_prints_a_line_each_and_fails_when_something_is_to_be_fixed(kit: Kit) -> None:
    lines = run(*CHECK, *kit).stdout.splitlines()
    assert all(line[:4] in ("ok  ", "note") for line in lines)
    (kit[1] / "local" / "privacy.json").unlink()
    assert any(line.startswith("FIX  kit") for line in run(*CHECK, *kit, code=1).stdout.splitlines())
    content = json.loads(run(*CHECK, *kit, "--json", code=1).stdout)
    assert content["ok"] is False
    assert {"kit", "privacy.json"} <= {check["name"] for check in content["checks"] if check["outcome"] == "fix"}


def test_policy_set_show_and_explain(kit: Kit) -> None:
    assert "every class" in run("policy", "explain", *kit).stdout
    changed = run("policy", "set", *kit, "--share-prototypes", "off", "--share-metrics", "scalar").stdout
    assert "Prototypes: none leave" in changed
    shown = json.loads(run("policy", "show", *kit, "--json").stdout)
    assert shown["policy"]["share_prototypes"] is False
    assert shown["policy"]["share_metrics"] == "scalar"
    assert shown["restart_needed"] is False
    run("policy", "set", *kit, "--share-prototypes", "NV, MEL")
    assert "share_prototypes: ['NV', 'MEL']" in run("policy", "show", *kit).stdout
    assert "sealed by this site" in run(*CHECK, *kit).stdout


def test_policy_set_changes_floors_and_rounding(kit: Kit) -> None:
    floors = ("--training", "min_sites=4", "--training", "methods=fedmr,fedavg", "--training", "max_jobs_per_day=null")
    said = run("policy", "set", *kit, *floors, "--round-samples", "50").stdout
    assert "method fedmr or fedavg" in said
    assert "at least 4 sites" in said
    assert "rounded to 50" in said
    with raises("config.value", "--training", kind=PolicyError):
        run("policy", "set", *kit, "--training", "min_sites")


def value_for(key: Key) -> list[str]:
    """Return what sets a key to another value than its default, on the command line."""
    option = f"--{key.name.replace('_', '-')}"
    if key.kinds == (bool,):
        return [f"--no{option[1:]}" if key.field.default else option]
    if key.sections:
        number = next(part.name for part in keys(key.sections[0]) if float in part.kinds)
        return [option, f"{number}=0.05"]
    if float in key.kinds:
        return [option, "0.05"]
    choices = next((get_args(kind) for kind in key.kinds if get_origin(kind) is Literal), ("20",))
    return [option, "on" if bool in key.kinds else str(choices[-1])]


@pytest.mark.parametrize("key", keys(SitePolicy), ids=lambda key: key.name)
def test_policy_set_takes_every_key_of_the_policy(key: Key, kit: Kit) -> None:
    path = kit[1] / "local" / "site.yaml"
    path.write_text("data: {source: demo, center: 4}\n")
    run("policy", "set", *kit, *value_for(key))
    changed = load_site(path).policy
    assert [name for name in SitePolicy.model_fields if getattr(changed, name) != getattr(SitePolicy(), name)] == [
        key.name
    ]
    assert list(yaml.safe_load(path.read_text())["policy"]) == [key.name]


def test_policy_set_changes_a_budget_and_takes_it_away(kit: Kit) -> None:
    run("policy", "set", *kit, "--privacy", "epsilon=8", "--privacy", "min_noise=1")
    run("policy", "set", *kit, "--privacy", "epsilon=2")
    budget = load_site(kit[1] / "local" / "site.yaml").policy.privacy
    assert (budget.epsilon, budget.min_noise) == (2, 1)
    with raises("config.unknown-key", "policy.privacy.epsilonn", kind=PolicyError):
        run("policy", "set", *kit, "--privacy", "epsilonn=2")
    run("policy", "set", *kit, "--privacy", "null")
    assert load_site(kit[1] / "local" / "site.yaml").policy.privacy is None


def test_policy_set_needs_something_to_set(kit: Kit) -> None:
    with raises("config.missing", kind=PolicyError):
        run("policy", "set", *kit)


def test_a_kit_made_by_distributed_provisioning_is_locked_here(kit: Kit, tmp_path: Path) -> None:
    """FLARE's own kit has its defaults and none of our files."""
    local = kit[1] / "local"
    site_file = shutil.copy(local / "site.yaml", tmp_path / "mine.yaml")
    stock = json.loads((local / "resources.json").read_text()) | {"class_allow_list": ["*"]}
    for path in local.iterdir():
        if path.name != "log_config.json.default":
            path.unlink()
    (local / "resources.json.default").write_text(json.dumps(stock))
    run(*CHECK, *kit, code=1)
    run("lock", site_file, *kit)
    run(*CHECK, *kit)


def test_seal_after_a_change_by_hand(kit: Kit) -> None:
    path = kit[1] / "local" / "site.yaml"
    path.write_text(path.read_text() + "max_bad_fraction: 0.05\n")
    run(*CHECK, *kit, code=1)
    run("seal", *kit)
    run(*CHECK, *kit)


@pytest.mark.parametrize("command", ["audit", "jobs"])
def test_a_folder_that_is_no_hospitals_kit_is_not_called_empty(command: str, kits: Path, tmp_path: Path) -> None:
    """FEDMR_MED_KIT may name the lead's, and the folder may be the wrong one."""
    for kit in (next(kits.glob("lead*")), tmp_path):
        with raises("kit.form", "--kit"):
            run(command, "--kit", str(kit))


def test_audit_sums_up_what_left(kit: Kit) -> None:
    path = kit[1] / AUDIT_FILE
    assert "Nothing has left this hospital yet" in run("audit", *kit).stdout
    assert json.loads(run("audit", *kit, "--json").stdout)["replies"] == []
    parts = {"model": {"bytes": 10}, "prototypes": {"bytes": 5, "classes": ["NV", "MEL"]}}
    for round_number in (1, 2):
        line = {"time": "t", "job": "j", "task": "train", "code": "OK", "round": round_number, "metrics": "scalar"}
        journal.append(path, line | {"bytes": 2_000_000, "parts": parts})
    journal.append(path, {"time": "t", "job": "j", "code": "TASK_RESULT_FILTER_ERROR", "bytes": 0, "parts": {}})
    summary = run("audit", *kit).stdout
    assert "3 replies, 4.0 MB; 1 without content" in summary
    assert "train (2x): model; prototypes of NV (2x), MEL (2x); metrics scalar" in summary
    assert "1x nothing left: TASK_RESULT_FILTER_ERROR" in summary
    content = json.loads(run("audit", *kit, "--json").stdout)
    assert len(content["replies"]) == 3
    assert f"head {content['head']}" in summary
    run("audit", *kit, "--head", content["head"])
    path.write_text(path.read_text().replace("MEL", "BCC", 1))
    assert "NOT INTACT" in run("audit", *kit, code=1).stdout
    assert "line 2" in json.loads(run("audit", *kit, "--json", code=1).stdout)["problems"][0]


def test_a_person_shows_and_accepts_the_cohort(kit: Kit) -> None:
    assert json.loads(run("cohort", "show", *kit, "--json").stdout) == {"sites": None}
    run("cohort", "accept", "msk", "bcn", "rosendahl", "vienna-dias", *kit)
    said = run("cohort", "accept", "msk", "bcn", "rosendahl", *kit).stdout
    assert "tell what vienna-dias put in" in said
    assert json.loads(run("cohort", "show", *kit, "--json").stdout) == {"sites": ["bcn", "msk", "rosendahl"]}
    with raises("secure.too-few-sites"):
        run("cohort", "accept", "msk", "bcn", *kit)
    with raises("file.missing", "--kit"):
        run("cohort", "show", "--kit", kit[1] / "nobody")


def test_jobs_lists_what_was_asked_and_takes_the_decision(kit: Kit) -> None:
    assert "Nothing has been asked yet" in run("jobs", *kit).stdout
    book = ApprovalBook(kit[1] / APPROVALS_FILE)
    book.asked(isic_job("fedmr"), job_id="j1", chain="c1")
    book.asked(isic_job("fedmr").override({"train": {"lr": 0.5}}), job_id="j2", chain="c2")
    assert run("jobs", *kit).stdout.count("waits for a decision") == 2
    shown = re.findall(r"settings (\S+), chain", run("jobs", *kit).stdout)
    whole = [request.settings for request in book.requests()]
    assert shown == [settings[:12] for settings in whole]
    assert {len(settings) for settings in whole} == {64}
    run("jobs", *kit, "--approve", shown[0])
    first, second = json.loads(run("jobs", *kit, "--refuse", "c2", "--json").stdout)["jobs"]
    assert (first["state"], second["state"]) == ("approved", "refused")
    with raises("config.conflict", "--approve", kind=PolicyError):
        run("jobs", *kit, "--approve", "c1", "--refuse", "c1")
    run("policy", "set", *kit, "--approve", "each", "--approval-minutes", "30")
    assert "Each chain starts only after a person here" in run("policy", "explain", *kit).stdout


def test_audit_names_every_exchange_with_its_fields_and_classes(tmp_path: Path) -> None:
    layers = {"site_filters": (PrototypeFilter(),), "components": (PolicyGuard(), AuditLog())}
    site = SiteAtWork(tmp_path, SHARES_ALL, FedMRExecutor(), **layers)
    for kind in ("train", "validate", "head"):
        assert site.answer(kind).get_return_code() == "OK"
    summary = run("audit", "--kit", tmp_path).stdout
    counts = full_statistics().statistics["kept"]["counts"]
    held = zip(site.job.task.class_names, counts, strict=True)
    classes = ", ".join(f"{name} (1x)" for name, count in held if count)
    assert f"kept (counts, sums, moments) of {classes}" in summary, summary
    assert "train (1x): " in summary
    assert "validate (1x): " in summary
    assert summary.count(f"of weights with SHA-256 {weights_sent(site.state(), site.job)}") == 3


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """Books of earlier versions may hold them; a job with such texts is not valid any more."""
    book = ApprovalBook(tmp_path / APPROVALS_FILE)
    book.asked(isic_job("fedmr"), job_id="j1", chain="c1")
    (line,) = journal.read(book.path).entries
    hostile = "harmless\r\n\x1b[2J\x9b31m\u202efake"
    journal.append(book.path, line | {"name": hostile, "words": [hostile], "job": "j2", "chain": "c2"})
    journal.append(
        tmp_path / AUDIT_FILE, {"time": "t", "job": "j", "code": "X", "reason": hostile, "bytes": 0, "parts": {}}
    )
    for command in ("jobs", "audit"):
        printed = run(command, "--kit", tmp_path).stdout
        assert "harmless\\r\\n\\x1b[2J" in printed
        assert all(text.isprintable() for text in printed.split("\n"))


def test_a_job_is_tried_on_generated_pictures_before_anybody_approves_it(tmp_path: Path) -> None:
    kit, job = tmp_path / "kit", small_job(federation={"rounds": 2, "min_sites": 3}, train={"updates": 10})
    torch.save(build_network(job.override({"seed": 7})).state_dict(), tmp_path / "weights.pt")
    named = with_weights(job, tmp_path / "weights.pt")
    (kit / "local").mkdir(parents=True)
    (kit / "local" / "site.yaml").write_text(SHARES_ALL.replace("training: null", "training: {}"))
    ApprovalBook(kit / APPROVALS_FILE).asked(named, job_id="j1", chain="c1")
    before = sorted(kit.rglob("*"))

    def tried(*options: object) -> dict[str, dict]:
        replies = json.loads(run("jobs", "try", "c1", "--kit", kit, "--json", *options).stdout)["replies"]
        return {line["task"]: line for line in replies}

    left = tried("--weights", tmp_path / "weights.pt")
    assert list(left) == ["train", "validate", "head"]
    assert {line["weights"] for line in left.values()} == {named.model.weights}
    assert {"model", "prototypes", "scores"} <= left["train"]["parts"].keys()
    assert "NV" in left["head"]["parts"]["kept"]["classes"]
    said = run("jobs", "try", "c1", "--kit", kit).stdout
    assert named.model.weights in said
    assert re.search(r"train \(1x\): .*prototypes \(counts, sums\) of .*NV", said)
    assert sorted(kit.rglob("*")) == before, "a trial leaves nothing behind"
    (kit / "local" / "site.yaml").write_text(SHARES_ALL.replace("training: null", "training: {min_sites: 4}"))
    assert {line["code"] for line in tried().values()} == {floor_code("sites")}
    torch.save(build_network(job.override({"seed": 8})).state_dict(), tmp_path / "other.pt")
    with raises("weights.other", "--weights"):
        tried("--weights", tmp_path / "other.pt")
    with raises("approval.unknown-job"):
        run("jobs", "try", "c2", "--kit", kit)


def test_withdraw_is_written_down_once_and_shown_by_the_audit(tmp_path: Path) -> None:
    kit = ("--kit", tmp_path)
    ApprovalBook(tmp_path / APPROVALS_FILE).asked(small_job(), job_id="j1", chain="c1")
    first = json.loads(run("withdraw", "c1", *kit, "--json").stdout)
    assert json.loads(run("withdraw", "c1", *kit, "--json").stdout) == first, "there is nothing to say twice"
    audit = json.loads(run("audit", *kit, "--json").stdout)
    assert audit["left"] == {"c1": {"time": first["time"], "by": first["by"]}}
    journal.append(
        tmp_path / AUDIT_FILE, {"time": "t", "job": "j1", "task": "head", "code": "OK", "bytes": 0, "parts": {}}
    )
    assert "left the chain c1" in run("audit", *kit).stdout
    with raises("approval.unknown-job"):
        run("withdraw", "c2", *kit)
