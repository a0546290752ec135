"""Job configuration: strict, comparable, overridable."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, create_model

from fedmr_med import config
from fedmr_med.config import FIRST_DEFAULTS, HeadConfig, JobConfig, TrainConfig, load_job
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.privacy.policy import Sharing
from fedmr_med.schema import dump_yaml
from fedmr_med.site.approval import settings_id
from tests.helpers import REPOSITORY


@pytest.fixture
def job() -> JobConfig:
    return isic_job("fedmr")


def test_a_job_survives_its_yaml_file(job: JobConfig, tmp_path: Path) -> None:
    for defaults in (True, False):
        (tmp_path / "fedmr.yaml").write_text(dump_yaml(job, defaults=defaults))
        assert load_job(tmp_path / "fedmr.yaml") == job


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeed": 1}, "seeed: is not a known key"),
        ({"train": {"learning_rate": 1}}, "train.learning_rate: is not a known key"),
        ({"train": {"epochs": 3}}, "exactly one of train.epochs and train.updates"),
        ({"federation": {"rounds": 0}}, "federation.rounds"),
        ({"chain": "../elsewhere"}, "chain"),
        ({"policy": {"share_prototypes": "perhaps"}}, "policy.share_prototypes"),
        ({"demo": {"train": {"batch": 4}}}, "train.batch: is not a known key"),
        ({"train": {"lr": float("inf")}}, "train.lr"),
        ({"train": {"lr": 1e6}}, "train.lr"),
        ({"train": {"workers": 10**6}}, "train.workers"),
        ({"train": {"batch_size": 10**9}}, "train.batch_size"),
        ({"train": {"updates": 10**400}}, "train.updates"),
        ({"task": {"image_size": 10**6}}, "task.image_size"),
        ({"task": {"class_names": [f"c{n}" for n in range(1001)]}}, "task.class_names"),
        ({"task": {"class_names": ["a", "b" * 101]}}, "task.class_names.1"),
        ({"federation": {"rounds": 10**7}}, "federation.rounds"),
        ({"federation": {"max_norm": float("inf")}}, "federation.max_norm"),
        ({"federation": {"max_norm": float("nan")}}, "federation.max_norm"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_bad_settings_are_refused_by_file_and_key(
    job: JobConfig, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    content = yaml.safe_load(dump_yaml(job))
    for key, value in change.items():
        content[key] = content.get(key, {}) | value if isinstance(value, dict) else value
    path = tmp_path / "fedmr.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as error:
        load_job(path)
    assert message in str(error.value)
    assert str(path) in str(error.value) or "overrides" in str(error.value)


BOMB = "a: &a [1, 1]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BOMB, "alias"),
        ("a: &a {b: *a}", "alias"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested deeper than 20"),
        ("a:\n" + "".join(" " * n + "- \n" for n in range(1, 900)), "nested deeper than 20"),
        ("a: " + "9" * 5000, "integer"),
        ("a: 2026-13-45", "month"),
        ("a: " + "x" * 10**6, "larger than"),
        ("{[a]: 1}", "mapping"),
    ],
)
def test_a_file_that_would_choke_its_reader_is_refused_in_a_sentence(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "fedmr.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))) as error:
        load_job(path)
    assert reason in str(error.value)


@pytest.mark.parametrize("content", [None, "just text", "a: [1", b"\xff\xfe"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: str | bytes | None) -> None:
    path = tmp_path / "fedmr.yaml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        load_job(path)


def test_demo_overrides_replace_only_what_they_name(job: JobConfig) -> None:
    demo = job.for_demo()
    assert demo.task.image_size == 40
    assert demo.task.class_names == job.task.class_names
    assert demo.model.options == job.model.options | job.demo["model"]["options"]
    assert demo.demo == {}


def test_the_digest_tells_configurations_apart(job: JobConfig) -> None:
    longer = job.override({"federation": {"rounds": 50}, "name": "again", "chain": "c1"})
    same = job.model_copy(update={"demo": {}})
    assert longer.digest() == same.digest()
    assert job.override({"seed": 1}).digest() != same.digest()
    assert job.override({"train": {"lr": 0.1}}).digest() != same.digest()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": {"min_class_count": 5}},
        {"policy": Sharing().model_dump()},
        {"federation": {"server": {"optimizer": "average"}}},
        {"federation": {"server": {"momentum": 0.5}, "stop": {"patience": 3}, "max_deviation": None}},
        {"train": {"updates": None, "epochs": 2, "private": {"clip": 1, "noise": 2}}},
    ],
)
def test_a_file_of_what_is_set_means_the_same_as_one_with_all_defaults(
    job: JobConfig, tmp_path: Path, changes: dict[str, Any]
) -> None:
    changed = job.override(changes)
    files = {defaults: tmp_path / f"{defaults}.yaml" for defaults in (True, False)}
    for defaults, path in files.items():
        path.write_text(dump_yaml(changed, defaults=defaults))
    whole, short = (load_job(path) for path in files.values())
    assert whole == short == changed
    assert whole.digest() == short.digest()
    assert settings_id(whole) == settings_id(short)
    assert len(files[False].read_text().splitlines()) < len(files[True].read_text().splitlines()) / 2


class LaterTrain(TrainConfig):
    """Local training of a later version, which has one key more."""

    warmup: int = 5


class LaterSharing(Sharing):
    """Likewise, in a section that a job leaves at a default of its own."""

    share_variance: bool = False


class LaterJob(JobConfig):
    """A job of a later version."""

    train: LaterTrain
    policy: LaterSharing = LaterSharing(share_prototypes=True, min_class_count=1, share_metrics="per_class")
    deadline: int | None = None


LATER = [
    {"train": {"warmup": 1}},
    {"policy": {"share_variance": True}},
    {"deadline": 3},
]


@pytest.mark.parametrize("changes", [{}, {"policy": {"min_class_count": 5}}])
def test_a_key_that_a_version_adds_changes_no_hash(job: JobConfig, changes: dict[str, Any]) -> None:
    job = job.override(changes)
    later = LaterJob.model_validate(yaml.safe_load(dump_yaml(job)))
    assert later.train.warmup == 5
    assert later.digest() == job.digest()
    assert settings_id(later) == settings_id(job)


@pytest.mark.parametrize("changes", LATER)
def test_setting_a_key_that_a_version_adds_changes_the_hashes(job: JobConfig, changes: dict[str, Any]) -> None:
    later = LaterJob.model_validate(yaml.safe_load(dump_yaml(job)))
    changed = later.override(changes)
    assert changed.digest() != job.digest()
    assert settings_id(changed) != settings_id(job)


OTHER_MOMENTUM = create_model("OtherMomentum", __base__=TrainConfig, momentum=(float, 0.5))
OTHER_SHARE = create_model("OtherShare", __base__=HeadConfig, held_out=(float, 0.3))
OTHER_POLICY = create_model("OtherPolicy", __base__=Sharing, approval_minutes=(int, 5))
SHARED = OTHER_POLICY(share_prototypes=True, min_class_count=1, share_metrics="per_class")


@pytest.mark.parametrize(
    ("section", "key", "first"),
    [
        ({"train": (OTHER_MOMENTUM, ...)}, "train.momentum", 0.9),
        ({"head": (OTHER_SHARE, OTHER_SHARE())}, "head.held_out", 0.15),
        ({"policy": (OTHER_POLICY, SHARED)}, "policy.approval_minutes", 0),
        ({"policy": (Sharing, Sharing())}, "policy", JobConfig.model_fields["policy"].default),
        ({"seed": (int, 1)}, "seed", 0),
    ],
)
def test_a_changed_default_changes_the_hashes_of_jobs_that_rely_on_it(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], key: str, first: Any
) -> None:
    later = create_model("Later", __base__=JobConfig, **section)
    monkeypatch.setattr(config, "FIRST_DEFAULTS", {key: first})
    relies = later.model_validate(yaml.safe_load(dump_yaml(job, defaults=False)))
    says_so = later.model_validate(yaml.safe_load(dump_yaml(job)))
    assert relies != says_so
    assert says_so.digest() == job.digest() != relies.digest()
    assert settings_id(says_so) == settings_id(job) != settings_id(relies)


def test_the_hashes_are_those_of_every_version() -> None:
    job = load_job(REPOSITORY / "tests/server/data/checkpoint_441837c/fedmr.yaml")
    assert job.digest() == "2ee8dadac7e0c06f"
    assert settings_id(job) == "e105ddae9eee0368c86d631e29bf1c2114257aa35ff8ab1b19eaf17c8840340a"


def first_defaults(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the first default of every key of a section and of those in it."""
    for name, field in section.model_fields.items():
        key = prefix + name
        if not field.is_required():
            default = FIRST_DEFAULTS.get(key, field.default)
            dumped = default.model_dump(exclude_defaults=True) if isinstance(default, BaseModel) else default
            yield key, json.loads(json.dumps(dumped))
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from first_defaults(part, f"{key}.")


def test_a_job_does_not_turn_scatter_off(job: JobConfig) -> None:
    assert job.override({"policy": {"share_scatter": True}}) == job.override({})
    with pytest.raises(ConfigError) as error:
        job.override({"policy": {"share_scatter": False}})
    assert error.value.code == "config.unknown-key"


def test_no_default_is_changed_without_a_word() -> None:
    """Hashes leave defaults out, so a changed one must be named: see fedmr_med.config.FIRST_DEFAULTS."""
    assert dict(first_defaults(JobConfig)) == json.loads((REPOSITORY / "tests/job_defaults.json").read_text())
