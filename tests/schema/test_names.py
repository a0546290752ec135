"""Names of classes, jobs, sites and chains: what others write into them runs nowhere."""

from pathlib import Path

import pytest

from fedmr_med.config import load_job
from fedmr_med.data.datasets import DATASETS
from fedmr_med.evaluation.history import History
from fedmr_med.runner import Federation
from fedmr_med.schema import check_name, validated
from fedmr_med.sites import SiteConfig
from tests.helpers.errors import raises
from tests.helpers.small import small_job

HOSTILE = [
    "$__import__('os').system('id')",
    "@network",
    "%configs/other.json",
    "=1+1",
    "+1",
    "-1",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "[text](http://example.org)",
    "MEL`id`",
    "a|b",
    "a,b",
    'a"b',
    "two\nlines",
    "over\rwritten",
    "\x1b[2Jredrawn",
    "zero\u200bwidth",
    "turned\u202earound",
    " MEL",
    "MEL ",
    "MEL\n",
    "",
]
FAIR = [
    "MEL",
    "T-shirt/top",
    "Ankle boot",
    "bbps-0-1",
    "HER2+",
    "naevus (benign)",
    "0",
    "Mélanome",
    "黑色素瘤",
    "dir0.5",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_something_would_run_is_refused_wherever_it_comes_from(name: str, tmp_path: Path) -> None:
    classes = [name, *small_job().task.class_names[1:]]
    code = "config.name" if name else "config.string-too-short"
    with raises(code):
        small_job(task={"class_names": classes}, demo={})
    with raises(code, "name"):
        small_job(name=name)
    with raises("config.string-pattern-mismatch", "chain"):
        small_job(chain=name)
    with raises("config.string-pattern-mismatch"):
        small_job(federation={"statistics": [name]})
    with raises(code):
        validated(SiteConfig, {"data": {"source": "demo", "center": 0}, "classes": classes}, "site.yaml")
    with raises("config.bool-type"):
        validated(SiteConfig, {"data": {"source": "demo", "center": 0}, "policy": {"share_prototypes": [name]}}, "")
    with raises("config.name", "sites"):
        Federation(small_job(), {name: SiteConfig.model_validate({"data": {"source": "demo", "center": 0}})}, tmp_path)
    with raises(code):
        validated(History, {"evaluations": [{"round": 1, "sites": {}, "pooled": None, "pooled_sites": [name]}]}, "")


@pytest.mark.parametrize("name", FAIR)
def test_names_of_every_script_are_taken(name: str) -> None:
    check_name(name, "here")
    assert small_job(name=name).name == name


def test_what_is_shipped_has_such_names() -> None:
    for dataset in DATASETS.names():
        for name in DATASETS.get(dataset).class_names:
            check_name(name, dataset)
    for path in sorted(Path(__file__).parents[2].glob("jobs/*/app/config/fedmr.yaml")):
        load_job(path)
