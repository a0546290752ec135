"""What a person reads during and after a run."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import Scores, scored
from fedmr_med.evaluation.records import HeadRecord, RoundRecord, SiteReport, SiteRound
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.privacy.explain import UPDATE_SPEAKS
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.report.lines import refused_line, site_line
from fedmr_med.report.summary import summary
from fedmr_med.wire.messages import SiteReply
from tests.helpers.results import whole_score
from tests.helpers.small import initial_state, small_job


def text(history: History, *, demo: bool = False, job: JobConfig | None = None, **changes: Any) -> str:
    """Return the summary of a chain; ``changes`` are of its state."""
    job, console = job or small_job(), Console(width=200, record=True, file=io.StringIO())
    state = replace(initial_state(job), history=history, **changes)
    console.print(summary(state, job, Path("/runs/checkpoint.pt"), demo=demo))
    return console.export_text()


def history() -> History:
    good = whole_score(0.5, 0.412)
    site = SiteRound(
        samples=40,
        shared_classes=("MEL", "NV"),
        bytes_up=19_500_000,
        bytes_down=20_000_000,
        images_total=60,
        images_skipped=3,
    )
    silent = SiteRound(samples=30, shared_classes=(), bytes_up=1, bytes_down=1)
    record = RoundRecord(round=1, sites={"bcn": site, "msk": silent}, refused={"vienna-dias": "NaN values"})
    evaluation = Evaluation(round=0, sites={"bcn": good}, pooled=good, pooled_sites=("bcn",))
    return History().with_evaluation(evaluation).with_round(record)


def test_the_tables_say_who_shared_what_and_how_the_model_did() -> None:
    shown = text(history())
    for part in ("0.412", "pooled over bcn", "MEL NV", "57/60", "19.5 MB", "none", "NaN values", "/runs/checkpoint.pt"):
        assert part in shown, part
    assert "DEMO" not in shown
    assert "DEMO" in text(history(), demo=True)
    assert UPDATE_SPEAKS in " ".join(shown.split()), "an opt-out does not look like more than it is"
    assert "best model: after round 0" in shown


def test_the_summary_says_where_the_model_is_and_what_to_do_with_it() -> None:
    evaluation = Evaluation.of(1, {"bcn": scored(np.eye(8), np.arange(8))})
    lines = text(History().with_evaluation(evaluation)).splitlines()
    assert "model:      /runs/best_model.pt" in lines
    assert "next:       fedmr-med predict /runs/best_model.pt IMAGES" in lines
    without = text(History())
    assert "best_model.pt" not in without, "no model was scored, so there is no best one"
    assert "no hospital" in without


def test_a_site_that_never_fits_in_is_named() -> None:
    part = SiteRound(samples=9, shared_classes=(), bytes_up=0, bytes_down=0)
    history = History()
    for number in (1, 2):
        reasons = {"msk": "left out as an outlier: update 50 times the median, over 3"}
        history = history.with_round(RoundRecord(round=number, sites={"bcn": part}, refused=reasons))
    shown = text(history)
    assert "msk was refused in its last 2 rounds" in shown
    assert "bcn was" not in shown


def test_one_line_per_hospital_and_round() -> None:
    counts = torch.tensor([0, 12, 0, 0, 11, 0, 0, 0])
    reply = SiteReply(
        site="bcn",
        round=1,
        samples=40,
        settings=small_job().digest(),
        model={},
        statistics={"prototypes": ClassSums(torch.zeros(8, 2), counts), "scores": Scores(0.5, 0.333, 9)},
        report=SiteReport(terms={"classification": 1.5, "inter": 0.25}),
        bytes_up=2_000_000,
    )
    line = site_line(reply, small_job())
    assert line.startswith("round 2/2 · bcn")
    for part in ("40 images", "0.333", "1.5 classification + 0.25 inter", "prototypes of NV BKL", "2.0 MB"):
        assert part in line
    silent = SiteReply(site="msk", round=0, samples=4, settings=small_job().digest(), model={})
    assert "no prototypes" in site_line(silent, small_job())
    assert "\n" not in line
    assert refused_line("msk", "NaN") == "refused the reply of msk: NaN"


def test_prototypes_that_nobody_shared_of_late_are_named() -> None:
    age = torch.tensor([3, 0, 0, 0, 0, 0, 0, 0])
    assert "rounds since: MEL 3" in text(History(), prototypes=Prototypes(torch.zeros(8, 2), age >= 0, age))


def test_a_job_without_rounds_says_what_its_head_is_made_of() -> None:
    scored = history().evaluations[-1]
    head = HeadRecord(
        round=0, shrinkage=0.1, prior="uniform", sites=("bcn",), classes=("NV",), bytes_up=8, evaluation=scored
    )
    said = {}
    for name, past in {"nothing": History(), "scored": history(), "head": History(head=head)}.items():
        job = small_job(federation={"rounds": 0}, head={"exchange": "last" if name == "head" else "none"})
        said[name] = text(past.model_copy(update={"rounds": ()}), job=job)
    assert {name for name, lines in said.items() if "its features are random" in lines} == {"head"}
    assert {name for name, lines in said.items() if "there is no closed-form head" in lines} == {"nothing"}
    assert "0, with head" in said["head"]


def test_who_is_not_in_the_head_is_named_and_a_missing_head_too() -> None:
    head = HeadRecord(
        round=2,
        shrinkage=0.1,
        prior="uniform",
        sites=("bcn",),
        classes=("MEL",),
        bytes_up=1,
        refused={"msk": "left out as an outlier: it spreads"},
        limited=("bcn",),
    )
    rounds = history().rounds
    with_head, without = (text(History(rounds=rounds, head=record)) for record in (head, None))
    assert "msk is not in the closed-form head: left out as an outlier" in with_head
    assert "in the closed-form head: bcn" in with_head
    assert "there is no closed-form head" in without
    assert "there is no closed-form head" not in with_head
