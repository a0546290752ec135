"""A made-up run with everything that a report can show."""

from pathlib import Path

import numpy as np
import torch

from fedmr_med.evaluation.clinical import ScoreHistograms
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.records import RoundRecord, SiteRound
from fedmr_med.evaluation.results import RunResult, RunResults, RunSetup, write_result
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.models.model_file import FORMAT, write_tensors

CLASSES = ("MEL", "NV", "BCC")
SITES = ("clinica-sur", "nord-klinik", "ouest")


def scores(seed: int, skill: float, withheld: tuple[int, ...] = ()) -> Scores:
    """Return the scores of random logits that know the label the better, the larger ``skill`` is."""
    generator = np.random.default_rng(seed)
    labels = generator.choice([c for c in range(3) if c not in withheld], 90)
    logits = generator.normal(size=(90, 3)) + skill * np.eye(3)[labels]
    confusion = np.zeros((3, 3), dtype=np.int64)
    np.add.at(confusion, (labels, logits.argmax(1)), 1)
    present = confusion.sum(1) > 0
    return Scores(
        accuracy=float(np.trace(confusion) / 90),
        mean_recall=float((np.diag(confusion)[present] / confusion.sum(1)[present]).mean()),
        samples=90,
        confusion=confusion,
        withheld=withheld,
        histograms=ScoreHistograms.of(logits, labels),
    )


def part(number: int, shared: tuple[str, ...], skipped: int = 0) -> SiteRound:
    """Return a site's part in a round."""
    return SiteRound(
        samples=40 + 10 * number,
        shared_classes=shared,
        bytes_up=10**6,
        bytes_down=10**6,
        seconds=12.5 + number,
        terms={"classification": 1.2 / (number + 1), "anchor": 0.1 * number},
        images_total=100,
        images_skipped=skipped,
    )


def made_up_history(rounds: int = 4) -> History:
    """Return a chain in which one hospital opted out and dropped out, and one holds a class back."""
    history = History().with_evaluation(Evaluation.of(0, {"clinica-sur": scores(0, 0.0), "ouest": None}))
    for number in range(1, rounds + 1):
        sites = {"clinica-sur": part(number, CLASSES, 2), "nord-klinik": part(number, ("MEL", "NV"))}
        if number < 3:
            sites["ouest"] = part(number, ())
        refused = {"ouest": "its answer <b>came late</b>"} if number == 3 else {}
        record = RoundRecord(round=number, sites=sites, refused=refused, seconds=30.0)
        answers = {
            "clinica-sur": scores(number, 0.5 * number),
            "nord-klinik": scores(9, 0.4 * number, (2,)),
            "ouest": None,
        }
        history = history.with_round(record).with_evaluation(Evaluation.of(number, answers))
    return history


def write_chain(folder: Path, *, name: str = "lesions", demo: bool = False) -> Path:
    """Write results and checkpoint of a chain, and return its folder."""
    setup = RunSetup(
        dataset="lesions",
        split=None,
        method="fedmr",
        seed=7,
        name=name,
        model="small_cnn",
        class_names=CLASSES,
        demo=demo,
    )
    write_result(folder / "results.json", RunResults(runs=(RunResult.of(setup, made_up_history(), whole=True),)))
    prototypes = [torch.eye(3), torch.tensor([True, True, False]), torch.tensor([0, 3, 0])]
    write_tensors(
        folder / "checkpoint.pt", {"format": FORMAT, "job": "name: <lesions>\nseed: 7\n", "prototypes": prototypes}
    )
    return folder
