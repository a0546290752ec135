"""Job configuration: strict, comparable, overridable."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from fedmr_med.config import JobConfig, load_job
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.isic import isic_job
from fedmr_med.schema import dump_yaml


@pytest.fixture
def job() -> JobConfig:
    return isic_job("fedmr")


def test_a_job_survives_its_yaml_file(job: JobConfig, tmp_path: Path) -> None:
    (tmp_path / "fedmr.yaml").write_text(dump_yaml(job))
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
