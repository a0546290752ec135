"""What the server's part of a round costs: replies read, validated, compared with each other and added up."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.lab.perf.measure import CPU, Figure, interleaved, ratios
from fedmr_med.process import give_back_memory
from fedmr_med.prototypes import ClassSums
from fedmr_med.seeding import numpy_generator
from fedmr_med.server.shelf import MEMORY
from fedmr_med.server.state import GlobalState, initial_state
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire.codec import encode_reply
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply

_HELD = 2 * 2**30  # bytes of distinct contributions; beyond that they take turns. Far more than any processor's cache.


def aggregation_figures(job: JobConfig, state: GlobalState, contributions: int, repetitions: int) -> list[Figure]:
    """Measure the server's part of a round against numpy, FLARE's own aggregator, and a round without comparison.

    All of it, with the job's own rules: messages are decoded and checked as they come, held until the round closes,
    compared and added.
    """
    replies = _replies(job, state, contributions)
    samples = sum(reply.samples for reply in replies)
    plain = job.override({"federation": {"max_deviation": None}})
    from fedmr_med.lab.perf.stock import stock_mean  # nvflare, which nothing else here needs

    candidates = {
        "fedmr_med": lambda: _close(job, state, replies),
        "plain": lambda: _close(plain, state, replies),
        "numpy": lambda: _weighted_sum([(reply.model, reply.samples / samples) for reply in replies]),
        "flare": lambda: stock_mean([(reply.site, reply.model, reply.samples) for reply in replies]),
    }
    seconds = interleaved(candidates, repetitions)
    size = sum(array.size for array in state.model.values()) / 1e6
    case = f"{contributions} contributions of {size:.1f}M values ({job.model.name})"
    ours = f"{CPU} of decode + check + compare + add + finish"
    bases = {
        "numpy": "`acc += x * p` over the same arrays in numpy",
        "flare": "FLARE's InTimeAccumulateWeightedAggregator",
        "plain": "the same with max_deviation: null",
    }
    milliseconds = [1000 * value / contributions for value in seconds["fedmr_med"]]
    figures = [Figure.of("aggregate_ms", job.method.name, case, f"milliseconds a reply: {ours}", milliseconds)]
    for base, text in bases.items():
        against = ratios(seconds, "fedmr_med", base)
        figures.append(Figure.of(f"aggregate_vs_{base}", job.method.name, case, f"{ours} / of {text}", against))
    return figures


def memory_figures(job: JobConfig, contributions: int) -> list[Figure]:
    """Measure the memory of the server's part of a round, and what it would be if all replies stayed in memory.

    Each in a process of its own, so that nothing another measurement left behind is counted or used again.
    """
    cases = {
        "as the server does it": ("aggregate_memory", MEMORY),
        "with all replies in memory": ("aggregate_memory_unbounded", 2**62),
    }
    compared = "peak resident memory of the aggregation, global model and replies included / size of the model"
    figures = []
    for text, (name, memory) in cases.items():
        with multiprocessing.get_context("spawn").Pool(1) as process:
            models = process.apply(_peak_models, (job, contributions, memory))
        case = f"{contributions} contributions ({job.model.name}), {text}"
        figures.append(Figure.of(name, job.method.name, case, compared, [models]))
    return figures


def _peak_models(job: JobConfig, contributions: int, memory: int) -> float:
    """Return the peak memory of an aggregation, in sizes of the model."""
    state = initial_state(job)
    size = sum(array.nbytes for array in state.model.values())
    give_back_memory()
    before = _memory("VmRSS") - size
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, see proc(5)
    exchange = TrainExchange(job, state, num_sites=contributions, memory=memory)
    for number in range(contributions):
        model = {name: array.copy() for name, array in state.model.items()}
        _offer(exchange, SiteReply(f"site-{number:03}", state.round, 100, job.digest(), model))
        del model
    exchange.close()
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
        generator, near = numpy_generator("perf", number), dict(state.model)
        for name, array in near.items():
            if array.dtype.kind == "f":
                near[name] = array + generator.random(array.shape, dtype=np.float32) * np.float32(0.01)
        models.append(near)
    shared = ClassSums.zeros(*state.prototypes.means.shape)
    shared.counts.fill_(1)
    return [
        SiteReply(f"site-{n:03}", state.round, 100 + n, job.digest(), models[n % len(models)]).with_statistic(
            PROTOTYPES, shared
        )
        for n in range(count)
    ]


def _close(job: JobConfig, state: GlobalState, replies: list[SiteReply]) -> None:
    """Do the server's part of a round whose replies come in order, as in the runner."""
    exchange = TrainExchange(job, state, num_sites=len(replies), in_order=True)
    for reply in replies:
        _offer(exchange, replace(reply, settings=job.digest()))
    exchange.close()


def _offer(exchange: TrainExchange, reply: SiteReply) -> None:
    exchange.offer(reply.site, encode_reply(TRAIN, reply))


def _weighted_sum(contributions: list[tuple[Arrays, float]]) -> None:
    sums: Arrays = {name: np.zeros(array.shape, np.float32) for name, array in contributions[0][0].items()}
    for model, share in contributions:
        p = np.float32(share)
        for name, x in model.items():
            acc = sums[name]
            acc += x * p
