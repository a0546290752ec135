"""What the server's part of a round costs: aggregation with full validation."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.lab.perf.measure import CPU, Figure, interleaved, ratios
from fedmr_med.process import give_back_memory
from fedmr_med.prototypes import ClassSums
from fedmr_med.seeding import numpy_generator
from fedmr_med.server.aggregation import PrototypeAggregator
from fedmr_med.server.state import GlobalState, initial_state
from fedmr_med.wire.messages import SiteReply

_HELD = 2 * 2**30  # bytes of distinct contributions; beyond that they take turns. Far more than any processor's cache.


def aggregation_figures(job: JobConfig, state: GlobalState, contributions: int, repetitions: int) -> list[Figure]:
    """Measure a round's aggregation, validation included, against numpy and against FLARE's own aggregator.

    As on a server: replies are checked as they come and held until the round closes.
    """
    replies = _replies(job, state, contributions)
    samples = sum(reply.samples for reply in replies)
    from fedmr_med.lab.perf.stock import stock_mean  # nvflare, which nothing else here needs

    candidates = {
        "fedmr_med": lambda: _aggregate(job, state, replies),
        "numpy": lambda: _weighted_sum([(reply.model, reply.samples / samples) for reply in replies]),
        "flare": lambda: stock_mean([(reply.site, reply.model, reply.samples) for reply in replies]),
    }
    seconds = interleaved(candidates, repetitions, warm_up=0)
    size = sum(array.size for array in state.model.values()) / 1e6
    case = f"{contributions} contributions of {size:.1f}M values ({job.model.name})"
    ours = f"{CPU} of check + add + finish"
    compared = {
        "aggregate_vs_numpy": ("numpy", f"{ours} / of `acc += x * p` over the same arrays in numpy"),
        "aggregate_vs_flare": ("flare", f"{ours} / of FLARE's InTimeAccumulateWeightedAggregator"),
    }
    return [
        Figure.of(name, job.method.name, case, text, ratios(seconds, "fedmr_med", base))
        for name, (base, text) in compared.items()
    ]


def memory_figure(job: JobConfig, contributions: int) -> Figure:
    """Measure the memory of a round's aggregation as the runner does it, one reply after the other.

    In a process of its own, so that nothing another measurement left behind is counted or used again.
    """
    with multiprocessing.get_context("spawn").Pool(1) as process:
        models = process.apply(_peak_models, (job, contributions))
    case = f"{contributions} contributions ({job.model.name}), one after the other"
    compared = "peak resident memory of the aggregation, global model and one reply included / size of the model"
    return Figure.of("aggregate_memory", job.method.name, case, compared, [models])


def _peak_models(job: JobConfig, contributions: int) -> float:
    """Return the peak memory of an aggregation, in sizes of the model."""
    state = initial_state(job)
    size = sum(array.nbytes for array in state.model.values())
    aggregation = PrototypeAggregator(job, state)
    give_back_memory()
    before = _memory("VmRSS") - size
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, see proc(5)
    for number in range(contributions):
        model = {name: array.copy() for name, array in state.model.items()}
        reply = SiteReply(f"site-{number:03}", state.round, 100, job.digest(), model)
        aggregation.check(reply)
        aggregation.add(reply)
        del reply, model
    aggregation.finish(contributions, {})
    return (_memory("VmHWM") - before) / size


def _memory(field: str) -> int:
    """Return a size from Linux's table of this process, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def _replies(job: JobConfig, state: GlobalState, count: int) -> list[SiteReply]:
    """Return replies near the global model, each with all its prototypes."""
    models = []
    size = sum(array.nbytes for array in state.model.values())
    for number in range(min(count, max(_HELD // size, 1))):
        generator = numpy_generator("perf", number)
        models.append({name: _near(array, generator) for name, array in state.model.items()})
    shared = ClassSums.zeros(*state.prototypes.means.shape)
    shared.counts.fill_(1)
    return [
        SiteReply(f"site-{n:03}", state.round, 100 + n, job.digest(), models[n % len(models)], prototypes=shared)
        for n in range(count)
    ]


def _near(array: npt.NDArray[Any], generator: np.random.Generator) -> npt.NDArray[Any]:
    if not np.issubdtype(array.dtype, np.floating):
        return array.copy()
    near: npt.NDArray[Any] = array + generator.random(array.shape, dtype=np.float32) * np.float32(0.01)
    return near


def _aggregate(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> None:
    aggregation = PrototypeAggregator(job, state)
    for reply in replies:
        aggregation.check(reply)
    aggregation.add(*replies)
    aggregation.finish(len(replies), {})


def _weighted_sum(contributions: list[tuple[Arrays, float]]) -> None:
    sums: Arrays = {name: np.zeros(array.shape, np.float32) for name, array in contributions[0][0].items()}
    for model, share in contributions:
        p = np.float32(share)
        for name, x in model.items():
            acc = sums[name]
            acc += x * p
