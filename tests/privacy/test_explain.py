"""A policy in sentences: they say what leaves, and promise nothing that no policy can keep."""

import re

import pytest

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord, SiteRound
from fedmr_med.privacy.accountant import PrivacyBudget
from fedmr_med.privacy.explain import TOTAL_SPEAKS, UPDATE_SPEAKS, explain, privacy_costs
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.report.summary import sites_table
from tests.helpers import REPOSITORY


def test_explain_says_what_leaves() -> None:
    closed = "\n".join(explain(SitePolicy()))
    assert "Prototypes: none leave" in closed
    assert "Metrics: none leave" in closed
    some = "\n".join(explain(SitePolicy(share_prototypes=("NV",), min_class_count=7, share_metrics="scalar")))
    assert "the classes NV" in some
    assert "at least 7" in some
    assert "accuracy" in some


def test_explain_says_which_columns_images_are_scored_by() -> None:
    said = {shared: "\n".join(explain(SitePolicy(share_subgroups=shared))) for shared in (False, (), True, ("sex",))}
    assert "Subgroups" not in said[False] + said[()]
    assert "any column of the table" in said[True]
    assert "scored by sex," in said[("sex",)]


def test_explain_says_that_single_images_do_not_stand_out_in_jobs_that_bring_weights() -> None:
    usual, always, never = (
        "\n".join(explain(SitePolicy(share_prototypes=True, max_share=share))) for share in (None, 0.25, 1)
    )
    assert "of jobs that bring weights no image or patient makes up more than 50%" in usual
    assert "in sums without noise no image or patient makes up more than 25%" in always
    assert "Single images" not in never


def test_explain_says_how_the_number_of_images_is_rounded() -> None:
    exact, rounded = ("\n".join(explain(SitePolicy(round_samples=step))) for step in (1, 50))
    assert "number of training images." in exact
    assert "number of training images, rounded" in rounded


@pytest.mark.parametrize("shared", [False, ()])
def test_a_budget_for_prototypes_is_not_spoken_of_where_none_leave(shared: bool | tuple[str, ...]) -> None:
    budget = PrivacyBudget(epsilon=1, delta=1e-5, min_noise=1)
    assert "Privacy budget" in "\n".join(explain(SitePolicy(share_prototypes=True, privacy=budget)))
    assert "Privacy budget" not in "\n".join(explain(SitePolicy(share_prototypes=shared, privacy=budget)))


@pytest.mark.parametrize("policy", [SitePolicy(), SitePolicy(share_prototypes=True, share_metrics="per_class")])
def test_explain_does_not_promise_what_the_policy_cannot_keep(policy: SitePolicy) -> None:
    said = "\n".join(explain(policy))
    assert said.endswith(UPDATE_SPEAKS)
    assert ("how many test images of each shared class" in said) == (policy.share_metrics == "per_class")


def test_explain_says_what_a_demand_of_secure_sums_changes() -> None:
    statistics, everything = (
        "\n".join(explain(SitePolicy(training=TrainingFloors(secure=secure)))) for secure in ("statistics", "all")
    )
    for said in (statistics, everything):
        assert "prototypes and scores leave as a part of a total" in said
    assert statistics.endswith(UPDATE_SPEAKS)
    assert "as a part of a secure sum of all sites: the trained model" in everything
    assert everything.endswith(TOTAL_SPEAKS)


def test_explain_says_what_is_demanded_of_jobs() -> None:
    said = "\n".join(explain(SitePolicy()))
    assert "at least 10 steps a round, learning rate 1e-05 to 0.1 and at least 3 sites" in said
    assert "harder, not impossible" in said
    assert "any settings of a job are taken" in "\n".join(explain(SitePolicy(training=None)))


@pytest.mark.parametrize("document", ["README.md", "SECURITY.md"])
def test_the_documents_say_of_the_update_what_the_policy_says(document: str) -> None:
    text = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", (REPOSITORY / document).read_text())
    said = " ".join(text.replace("**", "").split())
    assert UPDATE_SPEAKS.removesuffix(": see SECURITY.md.") in said


def test_the_report_of_a_run_says_it_too() -> None:
    assert UPDATE_SPEAKS in str(sites_table(History()).caption)


def test_explain_says_what_a_budget_for_training_demands() -> None:
    budget = PrivacyBudget(epsilon=8, min_noise=0.9)
    said = "\n".join(explain(SitePolicy(share_metrics="scalar", training_privacy=budget)))
    assert "trains only for jobs with noise on the gradients (train.private), at least 0.9 times" in said
    assert "until all rounds together have cost epsilon 8 at delta 1e-05; then it refuses to train" in said
    assert "training losses and times" not in said, "losses have no noise"
    assert "Training budget" not in "\n".join(explain(SitePolicy()))


def test_a_run_says_what_its_noise_has_cost_each_site() -> None:
    def part(**costs: float) -> SiteRound:
        return SiteRound(samples=10, shared_classes=(), bytes_up=1, bytes_down=1, **costs)  # type: ignore[arg-type]

    rounds = (
        RoundRecord(round=1, sites={"a": part(training_epsilon=3.0), "b": part(training_epsilon=2.0)}),
        RoundRecord(round=2, sites={"a": part(training_epsilon=4.25, epsilon=1.0, total_epsilon=4.5)}),
    )
    assert privacy_costs(History(rounds=rounds)) == [
        "Differential privacy of prototypes, epsilon over all jobs of a site so far: a 1.00.",
        "Differential privacy of model updates, epsilon over all jobs of a site so far: a 4.25, b 2.00.",
        "Differential privacy of both together, epsilon over all jobs of a site so far: a 4.50.",
    ]
    assert privacy_costs(History()) == []


@pytest.mark.parametrize("level", ["none", "scalar", "per_class"])
def test_whoever_shares_scores_is_told_what_the_rule_of_small_cells_costs(level: str) -> None:
    said = "\n".join(explain(SitePolicy(share_metrics=level)))
    assert ("set min_cell_count to 1 where you may" in said) == (level != "none")
    without = "\n".join(explain(SitePolicy(share_metrics=level, min_cell_count=1)))
    assert ("may reveal single test images" in without) == (level != "none")
