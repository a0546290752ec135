"""What results keep of an evaluation."""

from dataclasses import replace

import numpy as np
import pytest

from fedmr_med.evaluation.figures import Figures, figures
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import Scores, scored, scores
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.evaluation.sets import set_thresholds
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.statistics.scores import released_scores
from tests.helpers.outputs import outputs

NAMES = ("MEL", "NV", "BCC", "AK")
OPEN = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1)


def site_scores(seed: int, count: int = 300, policy: SitePolicy = OPEN) -> Scores | None:
    return released_scores(*outputs(seed, count), policy, NAMES)


def test_figures_of_a_site_that_shares_per_class_scores() -> None:
    found = figures(scored(*outputs(0)))
    assert found.samples == sum(map(sum, found.confusion)) == 600
    areas = [c.metrics["auroc"] for c in found.classes]
    assert all(area.low < area.value < area.high for area in areas)
    assert {c.status for c in found.classes} == {"scored"}
    assert found.metrics["auroc"].value == pytest.approx(np.mean([area.value for area in areas]), abs=1e-4)
    assert found.classes[0].roc[0] == (0, 0)
    assert found.classes[0].roc[-1] == (1, 1)
    brier = found.metrics["brier"]
    assert 0 < brier.low < brier.value < brier.high < 2
    assert sum(point.count for point in found.reliability) == 600
    assert found.metrics["calibrated_nll"].value <= found.metrics["nll"].value


def test_held_back_is_not_the_same_as_none() -> None:
    confusion = np.diag([20, 0, 30, 0])
    found = figures(scores(confusion, withheld=(3,)))
    assert [c.status for c in found.classes] == ["scored", "none", "scored", "held_back"]
    evaluation = Evaluation.of(1, {"a": scores(confusion, (3,)), "b": None})
    assert evaluation.held_back == ("b",)
    assert evaluation.sites["a"].recall == (1, None, 1, None)
    assert evaluation.sites["a"].withheld == (3,)
    assert evaluation.pooled.withheld == (3,)


def test_scalars_alone_have_no_figures() -> None:
    closed = site_scores(0, policy=SitePolicy(share_metrics="scalar", min_cell_count=1))
    assert closed.histograms is None
    assert figures(closed) is None
    evaluation = Evaluation.of(1, {"a": closed})
    assert (evaluation.figures, evaluation.pooled_figures) == ({}, None)


def test_pooled_figures_are_those_of_pooled_data_and_sites_use_their_threshold() -> None:
    sites = {name: outputs(seed, 200) for seed, name in enumerate("ab")}
    evaluation = Evaluation.of(1, {name: scored(*content) for name, content in sites.items()})
    whole = scored(*(np.concatenate(parts) for parts in zip(*sites.values(), strict=True)))
    together, sets = figures(whole), set_thresholds(whole.histograms.positives)
    assert evaluation.pooled_figures == together.model_copy(update={"set_thresholds": sets})
    assert not any(found.set_thresholds for found in evaluation.figures.values()), "of all sites together alone"
    assert all(found.thresholds == together.thresholds for found in evaluation.figures.values())


def test_a_site_without_histograms_does_not_take_them_from_the_others() -> None:
    full = scored(*outputs(0))
    evaluation = Evaluation.of(1, {"a": full, "b": replace(full, histograms=None)})
    assert "auroc" in evaluation.pooled_figures.metrics
    assert evaluation.pooled_figures.samples == 2 * full.samples


def test_figures_stay_with_the_best_and_the_last_evaluation() -> None:
    history = History()
    for number, seed in enumerate((5, 3, 4, 2)):
        history = history.with_evaluation(Evaluation.of(number, {"a": site_scores(seed)}))
    best = history.best
    kept = [e.round for e in history.evaluations if e.pooled_figures]
    assert kept == sorted({best.round, 3})
    assert history.best_evaluation.round == best.round
    assert History.model_validate_json(history.model_dump_json()) == history


def test_a_results_entry_of_eight_classes_and_six_sites_is_small() -> None:
    policy = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1, min_class_count=1)
    names = tuple("ABCDEFGH")
    answers = {f"site-{i}": released_scores(*outputs(i, 800, classes=8), policy, names) for i in range(6)}
    assert len(Evaluation.of(1, answers).model_dump_json()) < 120_000


def test_an_empty_matrix_has_figures_of_nothing() -> None:
    found = figures(scores(np.zeros((2, 2), dtype=np.int64)))
    assert isinstance(found, Figures)
    assert found.samples == 0
