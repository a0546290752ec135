"""A statistic of a package outside the repository: one file, the same total plain and secure, under every policy."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.statistics.shared import shared_statistics
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.packages import write_package
from tests.helpers.shared_statistics import ENTRIES, EXCHANGES, POLICIES, STATISTIC
from tests.helpers.small import small_hospital, small_job

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the statistics say, by ``federation.secure`` and name."""
    folder = tmp_path_factory.mktemp("outside")
    write_package(folder / "site", "our-lengths", {"our_lengths": STATISTIC}, {"fedmr_med.statistics": ENTRIES})
    path = os.pathsep.join([str(folder / "site"), str(REPOSITORY)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.shared_statistics", folder / "runs"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def permitted_counts(exchange: str, folder: Path) -> np.ndarray:
    """Return how many images of each class may be in a total, (C,), by the words of the policies."""
    total = np.zeros(8, dtype=np.int64)
    for name, policy in POLICIES.items():
        site = small_hospital(name, small_job(), folder, policy)
        fold = site.data.test if exchange == "validate" else site.data.train
        counts = np.bincount(fold.labels, minlength=8)
        chosen = np.array([policy.share_prototypes is True] * 8)
        if isinstance(policy.share_prototypes, tuple):
            chosen = np.array([label in policy.share_prototypes for label in site.job.task.class_names])
        silent = policy.share_metrics != "per_class" if exchange == "validate" else policy.privacy is not None
        total += np.where(chosen & (counts >= policy.min_class_count) & (not silent), counts, 0)
    return total


@pytest.mark.parametrize("secure", ["none", "statistics"])
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_total_holds_the_classes_that_may_leave_and_nothing_else(
    results: dict[str, dict[str, Any]], tmp_path: Path, name: str, secure: str
) -> None:
    total, expected = results[secure][name], permitted_counts(EXCHANGES[name], tmp_path)
    assert total["counts"] == expected.tolist()
    assert total["images"] == expected.sum() > 0
    assert (np.array(total["lengths"]) > 0).tolist() == (expected > 0).tolist()
    claims = np.array(total["claims"])
    assert not claims[expected == 0].any(), "rows of a withheld class are zero, whatever a statistic puts there"


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_secure_total_is_the_plain_one(results: dict[str, dict[str, Any]], name: str) -> None:
    plain, secure = (results[how][name] for how in ("none", "statistics"))
    np.testing.assert_allclose(secure.pop("lengths"), plain.pop("lengths"), rtol=1e-4, atol=1e-4)
    assert secure == plain


def test_a_statistic_that_nobody_registered_is_an_error() -> None:
    with raises("config.unknown-name", "federation.statistics"):
        shared_statistics(["lengths"], "train")
