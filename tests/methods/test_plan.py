"""What a job asks of its sites, in which order."""

from fedmr_med.methods.plan import Step, plan
from tests.helpers.benchmarks import tiny_job


def kinds(rounds: int, exchange: str | int) -> list[str]:
    job = tiny_job("fedavg", changes={"federation.rounds": rounds, "head.exchange": exchange})
    return [f"{step.kind} of head" if step.of_head else step.kind for step in plan(job)]


def test_the_plan_says_what_a_job_asks_for() -> None:
    assert kinds(0, "last") == ["head", "validate of head"]
    assert kinds(0, "none") == ["validate"]
    assert kinds(1, "none") == ["train", "validate"]
    assert kinds(2, "last") == ["train", "train", "validate", "head", "validate of head"]
    assert kinds(2, 2) == ["train", "train", "head", "validate of head", "validate", "head", "validate of head"]


def test_a_server_with_a_test_set_scores_every_round_in_the_place_of_the_sites() -> None:
    job = tiny_job("fedavg", changes={"federation.rounds": 2, "head.exchange": "none"})
    assert plan(job, score_rounds=True) == [
        Step("train", 0, sites_score=False),
        Step("validate", 1),
        Step("train", 1, sites_score=False),
        Step("validate", 2),
        Step("validate"),
    ]
    assert plan(job) == [Step("train", 0), Step("train", 1), Step("validate")]
