"""Class names are the hospital's: no job gives its labels another meaning."""

from pathlib import Path

import pytest
from nvflare.apis.fl_constant import ReturnCode

from fedmr_med import data
from fedmr_med.config import TaskConfig
from fedmr_med.errors import DataError
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from fedmr_med.privacy import refusals
from fedmr_med.sites import load_site
from tests.helpers.errors import raises
from tests.helpers.pictures import isic_task, manifest_site, write_manifest_folder
from tests.helpers.site_at_work import SiteAtWork, TalkativeExecutor
from tests.helpers.small import small_job

NAMES = isic_task().class_names
MOVED = (NAMES[1], NAMES[0], *NAMES[2:])
NUMBERS = [("a.png", "0", "train", ""), ("b.png", "1", "train", ""), ("c.png", "1", "test", "")]


def task(names: tuple[str, ...]) -> TaskConfig:
    return isic_task().model_copy(update={"class_names": names})


def labels(root: Path, names: tuple[str, ...] = NAMES, **settings: object) -> list[int]:
    return data.load(manifest_site(root, **settings), task(names), seed=0).train.labels.tolist()


def test_a_job_must_have_one_name_per_class() -> None:
    with raises("config.duplicate", "task.class_names"):
        small_job(task={"class_names": ["MEL"] * 8})


def test_a_list_says_what_numbers_mean_and_a_job_cannot_change_it(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, NUMBERS)
    own = {"classes": NAMES, "policy": {"share_prototypes": ["MEL"]}}
    assert labels(root, **own) == [0, 1]
    for names in (MOVED, NAMES[:-1], (*NAMES[:-1], "scc"), (*NAMES, "UNK")):
        with raises("policy.class-names", "task.class_names"):
            labels(root, names, **own)


def test_a_mapping_is_followed_by_name_whatever_the_order(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, NUMBERS)
    own = {"classes": {"0": "NV", 1: "MEL"}}
    assert labels(root, **own) == [1, 0]
    assert labels(root, MOVED, **own) == [0, 1]
    with raises("policy.class-names", "task.class_names"):
        labels(root, ("melanoma", *NAMES[1:]), **own)


def test_numbers_get_no_name_from_the_job_where_the_policy_goes_by_names(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    write_manifest_folder(root, NUMBERS)
    assert labels(root, policy={"share_prototypes": True}) == [0, 1]
    with pytest.raises(DataError, match="a number needs `classes`"):
        labels(root, policy={"share_prototypes": ["MEL"]})


def test_the_policy_can_only_name_classes_of_the_hospital(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "data: {source: demo, center: 5}\nclasses: {0: NV}\npolicy: {share_prototypes: [MEL]}\n"
    )
    with raises("config.unknown-name", "policy.share_prototypes"):
        load_site(tmp_path / "site.yaml")


ORDERED = "data: {{source: demo, center: 5}}\nclasses: [{}]\npolicy: {{share_prototypes: [MEL], training: null}}\n"


def test_executor_filter_and_guard_refuse_a_job_that_renames(tmp_path: Path) -> None:
    own = ORDERED.format(", ".join(NAMES))
    assert SiteAtWork(tmp_path / "same", own).answer().get_return_code() == ReturnCode.OK
    other = ORDERED.format(", ".join(MOVED))
    assert SiteAtWork(tmp_path / "executor", other).answer().get_return_code() == refusals.CLASSES
    filtered = SiteAtWork(tmp_path / "filter", other, TalkativeExecutor(), site_filters=(PrototypeFilter(),))
    guarded = SiteAtWork(tmp_path / "guard", other, TalkativeExecutor(), components=(PolicyGuard(),))
    for site in (filtered, guarded):
        reply = site.answer()
        assert reply.get_return_code() != ReturnCode.OK
        assert "DXO" not in reply
