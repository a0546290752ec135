"""Jobs that differ in what they set aside: the difference of their sums is of no image, or of many.

Two ordinary jobs of a lead, with ``head.held_out`` 0.31 and 0.33, told one image's features exactly. Jobs with public
weights and other seeds gave the sums of any number of known subsets.
"""

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med import data
from fedmr_med.config import JobConfig, TaskConfig
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.drawing import with_validation
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.errors import FedMRError
from fedmr_med.privacy.floors import HELD_OUT, VALIDATION
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.server.state import initial_state
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.statistics import hold_out
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.pictures import manifest_site, write_manifest_folder
from tests.helpers.small import small_job, task_for

LEAST = SitePolicy().min_class_count


def one_shot(**changes: dict[str, float]) -> JobConfig:
    """Return a job that asks for statistics of the first weights alone, and that sites with floors answer."""
    keeps = {"federation": {"rounds": 0, "min_sites": 3}, "head": {"exchange": "last"}, "train": {"updates": 10}}
    return small_job("fedavg", **{name: keeps.get(name, {}) | changes.get(name, {}) for name in keeps | changes})


def released(job: JobConfig, folder: Path) -> list[dict[str, np.ndarray]]:
    """Return the parts of the statistics that a hospital with default floors lets out; none where it refuses."""
    policy = SitePolicy(share_prototypes=True)
    site = SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index("bcn")), policy=policy)
    try:
        hospital = Hospital("bcn", job, site, folder)
        return list(hospital.head_statistics(task_for(initial_state(job), job)).statistics.values())
    except FedMRError as e:
        assert e.code == "floor.held-out"
        return []


def test_two_jobs_do_not_tell_the_features_of_one_image(tmp_path: Path) -> None:
    asked = [
        *({"head": {"held_out": share}} for share in (0.15, 0.3, 0.31, 0.33)),
        *({"train": {"validation": share}} for share in (0.02, 0.2, 0.21, 0.22)),
        *({"policy": {"min_class_count": least}} for least in (12, 15)),
    ]
    parts = [part for i, changes in enumerate(asked) for part in released(one_shot(**changes), tmp_path / str(i))]
    assert len(parts) >= 4, "jobs were answered"
    for one, other in combinations(parts, 2):
        differ = np.abs(one["counts"] - other["counts"])
        assert ((differ == 0) | (differ >= LEAST)).all()
        same = (differ == 0) & (one["counts"] > 0)
        assert np.allclose(one["sums"][same], other["sums"][same]), "the same images"


@settings(max_examples=40)
@given(st.lists(st.integers(0, 150), min_size=2, max_size=4), st.integers(1, 30))
def test_all_jobs_set_the_same_images_aside(counts: list[int], per_patient: int) -> None:
    """Whatever the classes, the minimum and the validation images of a job; also of patients with several classes."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    patients = tuple(f"p{i // per_patient}" for i in range(len(labels)))
    fold = Fold(np.arange(len(labels)), labels, patients)
    if len(labels) < 2:
        return
    site = SiteData(fold, fold, tuple(map(str, range(len(counts)))))
    for share in VALIDATION:
        train = with_validation(site, share, smallest=LEAST).train if share else fold
        gone = np.bincount(labels, minlength=len(counts)) - np.bincount(train.labels, minlength=len(counts))
        assert ((gone == 0) | (gone >= LEAST)).all()
        chosen = product([np.ones(len(counts), bool), np.arange(len(counts)) > 0], [LEAST, LEAST + 1, 2 * LEAST])
        kept = [~hold_out(train, classes, fraction=HELD_OUT, smallest=least, site="s") for classes, least in chosen]
        for one, other in combinations(kept, 2):
            differ = np.bincount(train.labels[one != other], minlength=len(counts))
            assert ((differ == 0) | (differ >= LEAST)).all()


def test_a_hospitals_own_test_images_do_not_depend_on_the_job(tmp_path: Path) -> None:
    rows = [(f"{i}.png", "ab"[i % 2], "train", f"p{i // 2}") for i in range(40)]
    write_manifest_folder(tmp_path, rows)
    names = {"dataset": "isic2019", "class_names": ["a", "b"], "image_size": 8, "transform": "imagenet"}
    site = manifest_site(tmp_path, held_out=0.25)
    first, second = (data.load(site, TaskConfig.model_validate(names), seed=seed) for seed in (0, 7))
    assert first.test.groups == second.test.groups
    assert len(first.test) == pytest.approx(10, abs=2)


def test_the_number_of_images_is_the_same_whatever_classes_a_job_asks_for(tmp_path: Path) -> None:
    """Rounded with other classes whose counts leave, in one job after the other, a class of five told its five."""
    names = small_job().task.class_names
    asked = [True, False, *(tuple(name for name in names if name != gone) for gone in names), names[:2], names[2:]]
    told = set()
    for number, classes in enumerate(asked):
        job = small_job("fedavg", policy={"share_prototypes": classes, "min_class_count": 1 + number})
        policy = SitePolicy(share_prototypes=names[1:], training=None)
        site = SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index("vienna-dias")), policy=policy)
        told.add(Hospital("vienna-dias", job, site, tmp_path).train(task_for(initial_state(job), job)).samples)
    assert len(told) == 1
