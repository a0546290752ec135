"""No count of 1 to 10 of a withheld class can be derived from a site's replies, the model update aside.

The claim is stronger than that: for every such class there are other data, with no image of it at all, that give the
very same bytes. So not even whether there is one can be told.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.data.base import SiteData
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.evaluation.metrics import scores
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.schema import validated
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.images import open_data
from fedmr_med.site.release import leaving
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.statistics.scores import SCORES, permitted_scores, released_scores
from fedmr_med.wire.codec import encode_reply
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.replies import form_with
from tests.helpers.small import initial_state, lenient, small_job, task_for, without

NAMES = ("MEL", "NV", "BCC", "AK")
SKIPPED = 2
policies = st.builds(
    SitePolicy,
    share_prototypes=st.one_of(st.booleans(), st.lists(st.sampled_from(NAMES), unique=True).map(tuple)),
    min_class_count=st.integers(1, 20),
    share_metrics=st.sampled_from(["none", "scalar", "per_class"]),
    round_samples=st.integers(10, 50),
)
train_counts = st.lists(st.integers(0, 40), min_size=4, max_size=4).filter(lambda counts: sum(counts) > 1)
confusions = st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4)


def told(counts: np.ndarray, confusion: np.ndarray, policy: SitePolicy, *, asked: bool) -> dict[str, Any]:
    """Return everything but model and method state that a site with such data sends; ``asked`` for prototypes."""
    held = torch.from_numpy(counts)
    sums = ClassSums(torch.arange(4, dtype=torch.float64)[:, None] * held[:, None], held)
    shared = torch.from_numpy(policy.shareable_classes(counts, NAMES) & (counts > 0))
    total = int(counts.sum() + confusion.sum()) + SKIPPED
    reply = SiteReply(
        site="x",
        round=0,
        samples=policy.released_samples(counts, NAMES),
        settings="settings",
        model={},
        report=SiteReport(images_total=total, images_skipped=SKIPPED),
    )
    if asked and shared.any():
        reply = reply.with_statistic(PROTOTYPES, sums.only(shared))
    if confusion.any():
        reply = reply.with_statistic(SCORES, scores(confusion))
    message = encode_reply(TRAIN, leaving(TRAIN, reply, policy, form_with(NAMES)))
    arrays = {f"{part} {name}": a.tolist() for part, all_ in message.parts.items() for name, a in all_.items()}
    return arrays | message.meta


@given(policies, train_counts, confusions, st.booleans())
def test_data_without_any_image_of_a_withheld_class_send_the_same(
    policy: SitePolicy, train: list[int], test: list[list[int]], asked: bool
) -> None:
    counts, confusion = np.array(train), np.array(test)
    sent = told(counts, confusion, policy, asked=asked)
    chosen = policy.chosen_classes(NAMES)
    for label in np.flatnonzero((counts >= 1) & (counts <= 10) & ~policy.shareable_classes(counts, NAMES)):
        other = counts.copy()
        other[label] = 0
        opted_out = [d for d in np.flatnonzero(~chosen) if d != label]
        if not chosen[label] and opted_out:
            other[opted_out[0]] += counts[label]
        assert told(other, confusion, policy, asked=asked) == sent
    rows = confusion.sum(1)
    shown = chosen if chosen.any() and policy.share_metrics == "per_class" else np.full(4, True)
    for label in np.flatnonzero((rows >= 1) & (rows <= 10) & ~(shown & (rows >= policy.min_class_count))):
        emptied = confusion.copy()
        emptied[label] = 0
        assert told(counts, emptied, policy, asked=asked) == sent


@given(policies, train_counts)
def test_the_rounded_number_is_near_the_true_one_and_never_nothing(policy: SitePolicy, train: list[int]) -> None:
    counts = np.array(train)
    number = policy.released_samples(counts, NAMES)
    small = counts[policy.chosen_classes(NAMES) & (counts < policy.min_class_count)].sum()
    assert number >= policy.round_samples
    assert number % policy.round_samples == 0
    assert abs(number - (counts.sum() - small)) <= 2 * policy.round_samples
    assert policy.model_copy(update={"round_samples": 1}).released_samples(counts, NAMES) == counts.sum()


@pytest.mark.parametrize("value", [2, 9])
def test_rounding_that_does_not_hide_a_small_count_is_refused(value: int) -> None:
    with raises("config.value", "round_samples"):
        validated(SitePolicy, {"round_samples": value}, "the policy")


@given(policies, st.lists(st.integers(0, 25), min_size=4, max_size=4), st.integers(0, 10**6))
def test_histograms_obey_the_rule_of_the_confusion_matrix(policy: SitePolicy, counts: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(4), counts)
    logits = np.random.default_rng(seed).normal(size=(len(labels), 4)) + 2 * np.eye(4)[labels]
    told = released_scores(logits, labels, policy, NAMES)
    if told is None or told.histograms is None:
        assert told is None or told.confusion is None
        return
    least, histograms = policy.least_tested, told.histograms
    assert np.array_equal(histograms.positives.sum(1), told.confusion.sum(1))
    for rows in (histograms.positives, histograms.negatives, histograms.right[None], histograms.wrong[None]):
        images = rows.sum(1)
        assert ((images == 0) | (images >= least)).all()
    in_groups = vars(histograms.spread(least))
    assert all(np.array_equal(array, in_groups[name]) for name, array in vars(histograms).items())
    kept = ~np.isin(labels, told.withheld)
    same = released_scores(logits[kept], labels[kept], policy, NAMES)
    assert all(np.array_equal(array, getattr(same.histograms, name)) for name, array in vars(histograms).items())
    again = permitted_scores(told, policy, NAMES)
    assert all(np.array_equal(array, getattr(again.histograms, name)) for name, array in vars(histograms).items())
    stricter = policy.model_copy(update={"min_class_count": 26})
    assert permitted_scores(told, stricter, NAMES) is None, "no row leaves, so no histogram does"


def test_a_real_site_tells_nothing_of_its_three_rarest_images(tmp_path: Path) -> None:
    """Rosendahl has three training images of VASC: its number of images minus its shared counts used to say so."""
    job, vasc = small_job(), NAMES_OF_ISIC.index("VASC")
    policy = lenient(share_prototypes=True, share_metrics="per_class")
    site = SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index("rosendahl")), policy=policy)
    full = open_data("rosendahl", job, site)
    assert (full.train.labels == vasc).sum() == 3
    none = SiteData(without(full.train, vasc), without(full.test, vasc), full.class_names, is_demo=True)
    replies = [
        Hospital("rosendahl", job, site, tmp_path / name, site_data=loaded).train(task_for(initial_state(job), job))
        for name, loaded in (("full", full), ("none", none))
    ]
    first, second = (encode_reply(TRAIN, reply) for reply in replies)
    for key in first.meta.keys() - {"report", "exponents"}:
        assert first.meta[key] == second.meta[key]
    assert np.array_equal(first.parts["prototypes"]["counts"], second.parts["prototypes"]["counts"])
    assert replies[0].report.images_total == replies[1].report.images_total


NAMES_OF_ISIC = small_job().task.class_names
