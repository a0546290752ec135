"""No cell of 1 to 10 test images leaves a hospital by default, in the matrix or in anything beside it.

An attack on the version before read 18 of 18 of one hospital's cells. Here it reads on: histograms, patients'
residuals, scalars, validation scores, secure sums, and statistics of other packages. What leaves of scores is shown to
be what other images, with none of these cells, give to the byte.
"""

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from rich.console import Console

from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.evaluation.clinical import ScoreHistograms
from fedmr_med.evaluation.metrics import Scores, confusion_matrix, scored
from fedmr_med.export.card import make_card
from fedmr_med.export.source import Source
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.report.document import write_report
from fedmr_med.report.lines import round_line
from fedmr_med.report.summary import summary
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import Chain
from fedmr_med.site.release import released
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import Field, Values
from fedmr_med.statistics.scores import SCORES, permitted_scores, released_scores
from fedmr_med.statistics.shared import SHARED, Samples, SharedStatistic
from fedmr_med.wire.codec import decode_reply, encode_reply
from fedmr_med.wire.kinds import TRAIN, VALIDATE
from fedmr_med.wire.messages import SiteReply
from tests.helpers.small import initial_state, lenient, small_hospital, small_job, task_for

NAMES = ("MEL", "NV", "BCC", "AK")
LEAST = SitePolicy().min_cell_count
DEFAULT = lenient(share_prototypes=True, share_metrics="per_class", min_cell_count=LEAST)
EVERY_CELL = lenient(share_prototypes=True, share_metrics="per_class")


def small_cells(matrix: np.ndarray) -> int:
    """Return how many cells count 1 to 10."""
    return int(((matrix > 0) & (matrix < 11)).sum())


def matrices(scores: Scores | None) -> list[np.ndarray]:
    """Return the matrix of scores, and that of their validation images."""
    if scores is None or scores.confusion is None:
        return []
    return [scores.confusion, *matrices(scores.validation)]


def replies(name: str, folder: Path, policy: SitePolicy) -> list[Scores | None]:
    """Return the scores in what a hospital lets out in a round, and of its own trained model."""
    job = small_job(train={"validation": 0.2})
    site = small_hospital(name, job, folder, policy)
    form, state = reply_form(job), initial_state(job)
    trained = site.train(task_for(state, job))
    sent = released(TRAIN, encode_reply(TRAIN, trained), policy, form)
    found = [decode_reply(TRAIN, sent, name, form.layouts[TRAIN]).scores]
    for model in (state.model, trained.model):
        scored = site.validate(task_for(replace(state, model=model), job))
        left = released(VALIDATE, encode_reply(VALIDATE, scored), policy, form)
        found += [scored.scores, decode_reply(VALIDATE, left, name, form.layouts[VALIDATE]).scores]
    return found


def test_the_default_is_the_rule() -> None:
    assert LEAST == 11
    assert SitePolicy.model_validate({"share_metrics": "per_class", "min_cell_count": 1}).min_cell_count == 1


@pytest.mark.parametrize("name", HOSPITALS)
def test_no_reply_of_a_hospital_has_a_small_cell(name: str, tmp_path: Path) -> None:
    found = [matrix for scores in replies(name, tmp_path, DEFAULT) for matrix in matrices(scores)]
    assert sum(small_cells(matrix) for matrix in found) == 0


@pytest.mark.parametrize("name", ["bcn", "rosendahl"])
def test_the_attack_reads_cells_where_a_policy_lets_it(name: str, tmp_path: Path) -> None:
    found = [matrix for scores in replies(name, tmp_path, EVERY_CELL) for matrix in matrices(scores)]
    assert sum(small_cells(matrix) for matrix in found) > 0


def test_scores_do_leave_by_default(tmp_path: Path) -> None:
    """An untrained network calls all pictures by a few classes, so that some cells are large."""
    assert any(matrices(scores) for name in HOSPITALS for scores in replies(name, tmp_path, DEFAULT)[:1])


class Matrix(SharedStatistic):
    """The confusion matrix itself, as a package could share it."""

    name = "matrix"
    exchange = "validate"

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"cells": Field((sizes.num_classes, sizes.num_classes), by_class=True)}

    def values(self, samples: Samples, sizes: Sizes) -> Values:
        return {"cells": confusion_matrix(samples.labels, samples.logits.argmax(1), sizes.num_classes)}

    def result(self, total: Values) -> JsonValue:
        return int(total["cells"].sum())


@pytest.mark.parametrize("policy", [DEFAULT, EVERY_CELL])
def test_statistics_of_packages_see_no_image_of_a_class_with_a_small_cell(
    policy: SitePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHARED._items, "matrix", Matrix)
    job = small_job(federation={"statistics": ["matrix"]})
    found = 0
    for name in HOSPITALS:
        site, state = small_hospital(name, job, tmp_path, policy), initial_state(job)
        for model in (state.model, site.train(task_for(state, job)).model):
            shared = site.validate(task_for(replace(state, model=model), job)).statistics.get("shared/matrix")
            found += 0 if shared is None else small_cells(shared["cells"])
    assert (found > 0) == (policy is EVERY_CELL)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [DEFAULT, EVERY_CELL])
def test_a_secure_total_is_of_vectors_without_small_cells(policy: SitePolicy, tmp_path: Path) -> None:
    """A class that one hospital alone has is in the total as that hospital puts it in."""
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=policy)
        for name in ("bcn", "vidir-modern", "rosendahl")
    }
    job = small_job(federation={"secure": "statistics", "min_sites": 3}, train={"updates": 20, "lr": 0.01})
    history = Federation(job, sites, tmp_path).run().history
    pooled = [np.array(e.pooled_figures.confusion) for e in history.evaluations if e.pooled_figures]
    assert (sum(small_cells(matrix) for matrix in pooled) > 0) == (policy is EVERY_CELL)


def test_who_coordinates_is_told_why_scores_are_missing(tmp_path: Path) -> None:
    """In the log and in `watch`, at the end of a run, in the report and in the model card."""
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=DEFAULT)
        for name in ("vidir-molemax", "vienna-dias")
    }
    job = small_job(federation={"rounds": 1})
    federation = Federation(job, sites, tmp_path)
    state = federation.run()
    Chain(tmp_path, federation.job).write_results(state)
    evaluation = state.history.evaluations[-1]
    assert evaluation.pooled is None or evaluation.pooled.balanced_accuracy is None
    unscored = state.history.model_copy(
        update={"evaluations": (evaluation.model_copy(update={"sites": {}, "pooled": None, "held_back": ("bcn",)}),)}
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary(state, job, tmp_path / "checkpoint.pt", demo=True))
    write_report([tmp_path], tmp_path / "report.html")
    card = make_card(Source.open(tmp_path / "best_model.pt"))
    for said in (
        round_line(unscored, job),
        console.export_text(),
        (tmp_path / "report.html").read_text(),
        " ".join(card.limits),
    ):
        assert "min_cell_count" in said


@st.composite
def answers(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits (n, C) of a timid to overconfident network, labels (n,), and patients (n,)."""
    cells = draw(st.lists(st.sampled_from([0, 0, 1, 3, 10, 11, 12, 30]), min_size=16, max_size=16))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels, said = (np.repeat(index, cells) for index in np.divmod(np.arange(16), 4))
    logits = generator.normal(size=(len(labels), 4))
    logits[np.arange(len(labels)), said] = logits.max(1) + 0.1  # so that the cells are as drawn
    return draw(st.sampled_from([1.0, 1000.0])) * logits, labels, np.arange(len(labels)) // 2


def message(scores: Scores | None) -> str:
    return str(encode_reply(VALIDATE, SiteReply("").with_statistic(SCORES, scores)))


@given(
    answers(),
    st.sampled_from(["scalar", "per_class"]),
    st.one_of(st.booleans(), st.lists(st.sampled_from(NAMES), unique=True).map(tuple)),
    st.sampled_from([1, 11]),
)
def test_what_leaves_is_what_images_without_a_small_cell_give(
    found: tuple[np.ndarray, np.ndarray, np.ndarray], level: str, shared: bool | tuple[str, ...], least: int
) -> None:
    logits, labels, units = found
    policy = SitePolicy(share_prototypes=shared, share_metrics=level, min_class_count=least)
    left = released_scores(logits, labels, policy, NAMES, units)
    if left is None:
        return
    if left.histograms is not None or left.clustering is not None:
        exact = confusion_matrix(labels, logits.argmax(1), 4)[left.confusion.any(1)]
        assert small_cells(exact) == 0, "beside an exact matrix that may leave, nothing else tells a cell"
        kept = left.confusion.any(1)[labels]
        twin = logits[kept], labels[kept], units[kept]
        assert message(released_scores(*twin[:2], policy, NAMES, twin[2])) == message(left)
        return
    if left.confusion is not None:
        assert small_cells(left.confusion) == 0
        told, said = np.divmod(np.repeat(np.arange(16), left.confusion.ravel()), 4)
        twin_scores = released_scores(np.eye(4)[said], told, policy, NAMES)
        assert twin_scores is not None
        assert message(replace(twin_scores, histograms=None)) == message(left)
        return
    # Scalars: of the matrix that this policy would let out of all classes, in which no cell is small.
    full = released_scores(
        logits, labels, SitePolicy(share_prototypes=True, share_metrics="per_class", min_class_count=least), NAMES
    )
    assert full is not None and full.confusion is not None
    assert small_cells(full.confusion) == 0
    counts = np.bincount(labels, minlength=4)
    assert left.samples == counts[counts >= LEAST].sum(), "the same images in all rounds"
    assert (left.samples, left.accuracy, left.mean_recall) == (
        full.samples,
        round(full.accuracy, 3),
        round(full.mean_recall, 3),
    )


def test_a_group_of_a_histogram_is_no_smaller_than_a_cell() -> None:
    """Under ``min_class_count: 1`` each of 40 sure answers stood alone in its bin."""
    labels = np.repeat([0, 1], 20)
    logits = np.eye(2)[labels] * np.linspace(1, 3, 40)[:, None]
    policy = SitePolicy(share_prototypes=True, share_metrics="per_class", min_class_count=1)
    left = released_scores(logits, labels, policy, NAMES[:2], np.arange(40))
    finer = released_scores(logits, labels, policy.model_copy(update={"min_cell_count": 1}), NAMES[:2], np.arange(40))
    assert left is not None and left.histograms is not None and finer is not None and finer.histograms is not None
    alone = ScoreHistograms.of(logits, labels)
    assert np.array_equal(finer.histograms.positives, alone.positives)
    assert np.array_equal(left.histograms.positives, alone.spread(LEAST).positives)
    assert not np.array_equal(left.histograms.positives, alone.positives)


@pytest.mark.parametrize(
    "policy", [{"share_prototypes": True, "share_metrics": "scalar"}, {"share_metrics": "per_class"}]
)
def test_scalars_of_two_rounds_do_not_tell_how_many_images_a_class_has(policy: dict[str, object]) -> None:
    """A class that came and went with its few wrong answers took its test images out of the number and back."""
    labels = np.repeat([0, 1, 2], [100, 57, 40])
    told = set()
    for wrong in (20, 5, 0):
        answers = labels.copy()
        answers[:20], answers[-20:], answers[100 : 100 + wrong] = 1, 0, 2
        left = released_scores(np.eye(3)[answers], labels, SitePolicy.model_validate(policy), NAMES[:3])
        told |= set() if left is None else {left.samples}
    assert told == {197}


def test_a_sure_network_tells_a_cell_by_its_histograms_so_these_stay() -> None:
    """Two classes call 3 of 100 images by a third: the residuals of its specificity give the number away."""
    labels = np.repeat([0, 1, 2], [100, 100, 100])
    said = np.repeat([0, 1, 2, 1, 2], [60, 37, 3, 100, 100])
    logits, units = 1000.0 * np.eye(3)[said], np.arange(300)
    policy = SitePolicy(share_prototypes=True, share_metrics="per_class")
    before = released_scores(logits, labels, policy.model_copy(update={"min_cell_count": 1}), NAMES[:3], units)
    assert before is not None and before.clustering is not None and before.confusion is not None
    specificity = before.clustering.alone[3 + 3 + 2]  # of class 2, among the 200 images of others
    assert round(float(specificity)) == 3
    now = released_scores(logits, labels, policy, NAMES[:3], units)
    assert now is not None and now.confusion is not None
    assert now.confusion.tolist() == [[60, 40, 0], [0, 100, 0], [0, 0, 100]]
    assert now.histograms is None and now.clustering is None
    # So does the filter, of a reply that has them.
    whole = scored(logits, labels)
    assert whole.histograms is not None
    left = permitted_scores(whole, policy, NAMES[:3])
    assert left is not None and left.confusion is not None and left.confusion.tolist() == now.confusion.tolist()
    assert left.histograms is None


@pytest.mark.parametrize("level", ["scalar", "per_class"])
def test_scalars_over_one_class_do_not_leave(level: str) -> None:
    """A model that always answers with it scores 1."""
    logits, labels = np.eye(3)[np.zeros(43, int)], np.repeat([0, 1], [40, 3])
    assert released_scores(logits, labels, SitePolicy(share_metrics=level), NAMES[:3]) is None
