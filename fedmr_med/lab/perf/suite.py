"""All measurements in one run, and the object that ``fedmr-med perf --json`` prints."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.lab.perf.aggregation import aggregation_figures, memory_figures
from fedmr_med.lab.perf.federation import runner_figure, secure_figure, wire_figures
from fedmr_med.lab.perf.loading import data_wait, loader_speedups
from fedmr_med.lab.perf.measure import Figure, round_to
from fedmr_med.lab.perf.parallel import parallel_figures
from fedmr_med.lab.perf.simulator import simulator_figures
from fedmr_med.lab.perf.startup import import_figures
from fedmr_med.lab.perf.steps import memory_ratios, private_step_ratio, prototype_pass_ratio, round_ratios, step_ratios
from fedmr_med.lab.perf.workload import Case
from fedmr_med.process import kept_memory, set_threads
from fedmr_med.server.state import initial_state

BOTH = ("fedavg", "fedmr")
_FEDMR_HEAD = {"head": "fedmr"}

EFFICIENTNET = Case("efficientnet_b0", 64, options=_FEDMR_HEAD)
RESNET = Case("resnet18", 32, classes=10)
SMALL_CNN = Case("small_cnn", 32, classes=10)


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often.

    Attributes:
        steps: cases of the training step of all methods, with the number of repetitions; the first case of a
            network is its entry in ``step_ratio``.
        pairs: further cases of FedAvg, FedMR and FedMR by loops alone: how the ratio grows with the sizes.
        memory: cases of the peak memory of all methods.
        rounds: cases of a whole round of ``epochs`` local epochs: of all methods on the first case, then of two.
        prototype_pass, private: their case, with the number of repetitions.
        loader: images, their size, the batch and the repetitions of the data path.
        wait: case of the training loop behind one worker, with the number of images.
        aggregation: pairs of (name of the network's job, contributions), repetitions; the last is the entry.
        runner: clients and rounds.
        imports: repetitions.
        parallel: clients, their updates, rounds and repetitions of clients side by side.
        simulator: rounds and repetitions of FLARE's simulator, and rounds with secure sums; None leaves both out.
    """

    steps: tuple[tuple[Case, int], ...]
    pairs: tuple[tuple[Case, int], ...]
    memory: tuple[Case, ...]
    rounds: tuple[tuple[Case, int], ...]
    prototype_pass: tuple[Case, int]
    private: tuple[Case, int]
    loader: dict[str, int]
    wait: tuple[Case, int] | None
    aggregation: tuple[tuple[str, int, int], ...]
    runner: tuple[int, int]
    imports: int
    parallel: dict[str, int]
    simulator: dict[str, int] | None
    epochs: int = 10
    model: dict[str, Any] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """How often :func:`measure` says what is next."""
        several = (self.steps, self.pairs, self.memory, self.rounds, self.aggregation)
        return sum(map(len, several)) + 5 + (self.wait is not None) + (self.simulator is not None)


QUICK = Plan(
    steps=((SMALL_CNN, 25), (replace(EFFICIENTNET, image_size=32), 3)),
    pairs=((RESNET, 1),),
    memory=(SMALL_CNN,),
    rounds=((replace(SMALL_CNN, batches=2), 3),),
    prototype_pass=(replace(SMALL_CNN, batches=4), 5),
    private=(SMALL_CNN, 5),
    loader={"images": 16, "image_size": 200, "batch_size": 16, "repetitions": 3},
    wait=None,
    aggregation=(("efficientnet_b0", 20, 3),),
    runner=(5, 2),
    imports=1,
    parallel={"clients": 4, "updates": 25, "rounds": 1, "repetitions": 1},
    simulator=None,
)

FULL = Plan(
    steps=((EFFICIENTNET, 11), (RESNET, 7), (SMALL_CNN, 41)),
    pairs=(
        (replace(EFFICIENTNET, image_size=200), 3),
        (replace(EFFICIENTNET, batch_size=128), 5),
        (replace(RESNET, batch_size=128), 5),
        (replace(SMALL_CNN, batch_size=128), 41),
        (replace(SMALL_CNN, batch_size=256), 41),
        (replace(SMALL_CNN, options={"feature_size": 512}), 41),
        (replace(SMALL_CNN, classes=100), 41),
    ),
    memory=(EFFICIENTNET, RESNET, SMALL_CNN),
    rounds=((replace(SMALL_CNN, batches=8), 9), (replace(EFFICIENTNET, batches=4), 3), (replace(RESNET, batches=2), 3)),
    prototype_pass=(replace(EFFICIENTNET, batches=2), 5),
    private=(SMALL_CNN, 21),
    loader={"images": 64, "image_size": 200, "batch_size": 32, "repetitions": 7},
    wait=(replace(EFFICIENTNET, batch_size=32), 256),
    aggregation=(("wide_resnet28_10", 6, 5), *(("efficientnet_b0", n, 5) for n in (6, 50, 100))),
    runner=(20, 5),
    imports=5,
    parallel={"clients": 10, "updates": 100, "rounds": 3, "repetitions": 3},
    simulator={"rounds": 2, "repetitions": 1},
)


def measure(
    plan: Plan, on_start: Callable[[str], None] = lambda text: None, *, flamby: Path | None = None
) -> list[Figure]:
    """Run all measurements in one thread.

    Args:
        plan: what to measure.
        on_start: called with what is measured next.
        flamby: a checkout of FLamby, whose loader is then measured too.
    """
    set_threads(1)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, kept_memory():
        figures += _training(plan, on_start)
        figures += _data(plan, Path(folder), on_start, flamby)
        figures += _server(plan, Path(folder), on_start)
        figures += _processes(plan, Path(folder), on_start)
    return figures


def _training(plan: Plan, on_start: Callable[[str], None]) -> list[Figure]:
    """Measure what the methods cost a client."""
    figures: list[Figure] = []
    every = methods.PAPER_METHODS
    cases = [*((*entry, every) for entry in plan.steps), *((*entry, BOTH) for entry in plan.pairs)]
    for case, repetitions, names in cases:
        on_start(f"steps: {case}")
        figures += step_ratios(case, names, repetitions)
    for case in plan.memory:
        on_start(f"memory: {case}")
        figures += memory_ratios(case, every)
    for number, (case, repetitions) in enumerate(plan.rounds):
        on_start(f"rounds: {case}")
        figures += round_ratios(case, BOTH if number else every, repetitions, epochs=plan.epochs)
    on_start("prototype pass")
    figures.append(prototype_pass_ratio(*plan.prototype_pass))
    on_start("private step")
    return [*figures, private_step_ratio(*plan.private)]


def _data(plan: Plan, folder: Path, on_start: Callable[[str], None], flamby: Path | None) -> list[Figure]:
    """Measure the data path."""
    on_start("data path")
    figures = loader_speedups(_new_folder(folder / "images"), **plan.loader, flamby=flamby)
    if plan.wait is not None:
        case, images = plan.wait
        on_start("waiting for data")
        figures.append(data_wait(_new_folder(folder / "wait"), case, images=images))
    return figures


def _server(plan: Plan, folder: Path, on_start: Callable[[str], None]) -> list[Figure]:
    """Measure aggregation, runner, wire and imports."""
    figures: list[Figure] = []
    for model, contributions, repetitions in plan.aggregation:
        on_start(f"aggregation: {contributions} x {model}")
        job = _job(model, plan.model)
        figures += aggregation_figures(job, initial_state(job), contributions, repetitions)
    if sys.platform == "linux":
        model, contributions, _ = plan.aggregation[-1]
        figures += memory_figures(_job(model, plan.model), contributions)
    on_start("runner, wire, imports")
    clients, rounds = plan.runner
    figures.append(runner_figure(folder / "runner", clients=clients, rounds=rounds))
    return [*figures, *wire_figures(_job("efficientnet_b0", plan.model)), *import_figures(plan.imports)]


def _processes(plan: Plan, folder: Path, on_start: Callable[[str], None]) -> list[Figure]:
    """Measure what runs in several processes."""
    on_start("clients side by side")
    figures = parallel_figures(_new_folder(folder / "parallel"), **plan.parallel)
    if plan.simulator is not None:
        on_start("FLARE's simulator, secure sums")
        job = isic_job("fedmr").for_demo().override({"model": plan.model})
        figures += simulator_figures(_new_folder(folder / "simulator"), job, **plan.simulator)
        figures.append(secure_figure(_new_folder(folder / "secure"), job, rounds=plan.simulator["rounds"]))
    return figures


def _job(model: str, options: dict[str, Any]) -> JobConfig:
    """Return the ISIC job with a network; ``options`` replace those the plan's sizes ask for."""
    chosen = options or {"name": model, "options": _FEDMR_HEAD if model == "efficientnet_b0" else {}}
    return isic_job("fedmr").override({"model": chosen})


def _new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def as_object(figures: list[Figure]) -> dict[str, Any]:
    """Return the figures by field; ``figures`` holds all of them with sizes, meaning and spread.

    A field that was measured at several sizes has the first of each network for the methods, and the last, the
    largest, for the aggregation.
    """

    def one(name: str) -> float | None:
        values = [figure.value for figure in figures if figure.name == name]
        return round_to(values[-1]) if values else None

    def by_subject(name: str, digits: int = 4) -> dict[str, float]:
        return {figure.subject: round_to(figure.value, digits) for figure in figures if figure.name == name}

    def by_model(name: str) -> dict[str, dict[str, float]]:
        ratios: dict[str, dict[str, float]] = {}
        for figure in figures:
            if figure.name == name:
                ratios.setdefault(figure.case.split(",")[0], {}).setdefault(figure.subject, round_to(figure.value))
        return ratios

    return {
        "step_ratio": by_model("step_ratio"),
        "round_ratio": by_model("round_ratio"),
        "memory_ratio": by_model("memory_ratio"),
        "prototype_pass_ratio": one("prototype_pass_ratio"),
        "private_step_ratio": one("private_step_ratio"),
        "loader_speedup": by_subject("loader_speedup"),
        "loader_speedup_flamby": by_subject("loader_speedup_flamby"),
        "data_wait": one("data_wait"),
        "aggregate_vs_numpy": one("aggregate_vs_numpy"),
        "aggregate_vs_flare": one("aggregate_vs_flare"),
        "aggregate_vs_plain": one("aggregate_vs_plain"),
        "aggregate_ms": one("aggregate_ms"),
        "aggregate_memory": one("aggregate_memory"),
        "aggregate_memory_unbounded": one("aggregate_memory_unbounded"),
        "runner_ms_per_task": one("runner_ms_per_task"),
        "secure_share": one("secure_share"),
        "wire_bytes": {name: int(value) for name, value in by_subject("wire_bytes", digits=12).items()},
        "import_seconds": one("import_seconds"),
        "parallel_speedup": by_subject("parallel_speedup"),
        "simulator_overhead": by_subject("simulator_overhead") or None,
        "figures": [figure.as_dict() for figure in figures],
    }
