"""A statistic of a package outside the repository: one file, the same total plain and secure, under every policy."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import JsonValue

from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.site.release import released
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import Field, Values
from fedmr_med.statistics.shared import SHARED, Samples, SharedStatistic, shared_statistics
from fedmr_med.wire.codec import Message, encode_reply
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.kinds import VALIDATE
from fedmr_med.wire.messages import SiteReply
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.packages import write_package
from tests.helpers.shared_statistics import ENTRIES, EXCHANGES, POLICIES, STATISTIC
from tests.helpers.small import CLOSED, OPEN, lenient, small_hospital, small_job

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


@pytest.mark.slow
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


class Images(SharedStatistic):
    """Numbers of images by class, at the scores of a model."""

    name = "images"
    exchange = "validate"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"counts": Field((sizes.num_classes,), by_class=True)}

    def values(self, samples: Samples, sizes: Sizes) -> Values:
        return {"counts": np.bincount(samples.labels, minlength=sizes.num_classes)}

    def result(self, total: Values) -> JsonValue:
        return int(total["counts"].sum())


@pytest.fixture
def form(monkeypatch: pytest.MonkeyPatch) -> ReplyForm:
    """The form of a job that asks for the numbers of images."""
    monkeypatch.setitem(SHARED._items, "images", Images)
    return reply_form(small_job(federation={"statistics": ["images"]}))


def message(counts: np.ndarray) -> Message:
    return encode_reply(VALIDATE, SiteReply("", statistics={"shared/images": {"counts": counts}}))


COUNTS = np.arange(20, 28)


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (OPEN, COUNTS.tolist()),
        (lenient(share_prototypes=("NV",), share_metrics="per_class"), [0, 21, 0, 0, 0, 0, 0, 0]),
        (lenient(share_prototypes=True, share_metrics="scalar"), None),
        (CLOSED, None),
    ],
)
def test_the_guard_lets_out_what_the_policy_of_now_allows(
    form: ReplyForm, policy: SitePolicy, left: list[int] | None
) -> None:
    parts = released(VALIDATE, message(COUNTS), policy, form).parts
    assert {name: part["counts"].tolist() for name, part in parts.items()} == (
        {} if left is None else {"shared/images": left}
    )
    assert released(VALIDATE, message(COUNTS), policy, replace(form, secure="statistics")).parts == {}


def test_the_guard_refuses_what_is_not_of_the_fields_or_of_the_exchange(form: ReplyForm) -> None:
    with raises("wire.form", "shared/images"):
        released(VALIDATE, message(COUNTS[:3]), OPEN, form)
    with raises("wire.unasked"):
        released(VALIDATE, message(COUNTS), OPEN, reply_form(small_job()))
