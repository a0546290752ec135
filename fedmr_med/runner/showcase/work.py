"""Runs the federations of the demo in worker processes, says how far they are, and what they came to."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med import models
from fedmr_med.data.base import joined
from fedmr_med.data.loading import Batches
from fedmr_med.evaluation.results import RunResult
from fedmr_med.evaluation.seeds import Spread
from fedmr_med.models.job_network import build_network
from fedmr_med.report.progress import Progress
from fedmr_med.runner import Federation, open_sites
from fedmr_med.runner.showcase.plan import CLASSES, HOSPITALS, LABELS, LAST, Run, hospitals
from fedmr_med.runner.workers import worker_pool
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.state import GlobalState
from fedmr_med.site.training import outputs

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        run, result: what it was, and its entry in ``results.json``.
        labels: (n,) classes of the test pictures of all hospitals.
        answers: (n, C) logits of the last model for them.
        model: the file of the best model.
    """

    run: Run
    result: RunResult
    labels: npt.NDArray[np.int64]
    answers: npt.NDArray[np.float32]
    model: Path


def carry_out(run: Run, folder: Path, after_round: Callable[[GlobalState], None]) -> Outcome:
    """Do one run in this process, and keep its files in a folder of its own."""
    job, place = run.job, folder / run.name
    test = joined([data.test for data in open_sites(job, hospitals()).values()])
    state = Federation(job, run.sites, place, test=test).run(after_round)
    network = build_network(job)
    models.load_arrays(network, state.leaving().model)
    answers, labels = outputs(network, Batches.of(test, job.task, batch_size=job.train.batch_size))
    return Outcome(run, RunResult.of(run.setup(), state.history), labels, answers, place / BEST_MODEL)


def carry_out_all(
    runs: Sequence[Run], folder: Path, workers: int, on_progress: Callable[[int, Progress], None]
) -> list[Outcome]:
    """Do all runs, some of them side by side, and return what came of them in the order of the runs."""
    progress: Any = multiprocessing.get_context("spawn").SimpleQueue()
    with worker_pool(workers, _begin, progress) as pool:
        futures = [pool.submit(_carry_out, number, run, folder) for number, run in enumerate(runs)]
        running = True
        while running:
            done, others = wait(futures, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
            running = bool(others) and not any(future.exception() for future in done)
            while not progress.empty():
                on_progress(*progress.get())
        return [future.result() for future in futures]


@dataclass(frozen=True)
class Row:
    """What one way of training came to.

    Attributes:
        label: its name.
        score: balanced accuracy on the test pictures of all hospitals, mean of the last five rounds.
        held, missing: sensitivity of the last model for the classes that a hospital holds, and for those that it
            lacks; mean over the hospitals.
        head: balanced accuracy of the last model with its closed-form head; None where none was made.
        recall: (C,) sensitivity of the last model for each class.
        curves: balanced accuracy by round, from round 1, for each seed.
    """

    label: str
    score: Spread
    held: Spread
    missing: Spread
    head: Spread | None
    recall: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the rows of the demo's tables in their order."""
    return [_row(label, [o for o in outcomes if o.run.label == label]) for label in LABELS]


def _row(label: str, outcomes: Sequence[Outcome]) -> Row:
    seeds = sorted({outcome.run.job.seed for outcome in outcomes})
    by_seed = [[outcome for outcome in outcomes if outcome.run.job.seed == seed] for seed in seeds]
    heads = [outcome.result.head_balanced_accuracy for outcome in outcomes]
    known = [head for head in heads if head is not None]
    return Row(
        label,
        score=Spread.of(fmean(curve[-LAST:]) for curve in map(_curve, by_seed)),
        held=Spread.of(_of_hospitals(of_seed, held=True) for of_seed in by_seed),
        missing=Spread.of(_of_hospitals(of_seed, held=False) for of_seed in by_seed),
        head=Spread.of(known) if known else None,
        recall=tuple(np.mean([recalls(outcome) for outcome in outcomes], axis=0).tolist()),
        curves=tuple(map(_curve, by_seed)),
    )


def recalls(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the sensitivity of the last model for each class, (C,)."""
    right = outcome.answers.argmax(1) == outcome.labels
    return np.array([right[outcome.labels == label].mean() for label in range(len(CLASSES))])


def holds(hospital: str) -> npt.NDArray[np.bool_]:
    """Return which classes a hospital holds, (C,)."""
    return np.isin(CLASSES, HOSPITALS[hospital])


def _curve(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """Return the balanced accuracy by round; the mean of the hospitals where each trained alone."""
    curves = [[r.balanced_accuracy or 0.0 for r in outcome.result.rounds] for outcome in outcomes]
    return tuple(fmean(values) for values in zip(*curves, strict=True))


def _of_hospitals(outcomes: Sequence[Outcome], *, held: bool) -> float:
    """Return the mean sensitivity, over the hospitals, for the classes that each holds, or lacks."""
    return fmean(
        float(recalls(outcome)[holds(hospital) == held].mean())
        for outcome in outcomes
        for hospital in outcome.run.sites
    )


_progress: Any = None  # of this worker process


def _begin(progress: Any) -> None:
    global _progress  # noqa: PLW0603
    _progress = progress


def _carry_out(number: int, run: Run, folder: Path) -> Outcome:
    def tell(state: GlobalState) -> None:
        scores = [e.pooled.balanced_accuracy for e in state.history.evaluations if e.pooled]
        note = f"balanced accuracy {scores[-1]:.2f}" if scores else ""
        _progress.put((number, Progress(state.round * len(run.sites), len(run.sites), note)))

    return carry_out(run, folder, tell)
