"""What a method costs a client: a step, a round, memory, and the prototype pass."""

from collections.abc import Sequence
from typing import Any

import torch

from fedmr_med.lab.perf.measure import CPU, Figure, interleaved, ratios
from fedmr_med.lab.perf.workload import LOOPS, Case, Client

BASE = "fedavg"


def step_ratios(case: Case, methods: Sequence[str], repetitions: int) -> list[Figure]:
    """Measure a training step of each method against FedAvg's, and of FedMR by plain loops."""
    clients = {name: Client(case, name) for name in dict.fromkeys([BASE, *methods, LOOPS])}
    for client in clients.values():
        client.prepare_steps()
    seconds = interleaved({name: client.step for name, client in clients.items()}, repetitions)
    compared = f"{CPU} of a training step / of FedAvg's step"
    return [Figure.of("step_ratio", name, str(case), compared, ratios(seconds, name, BASE)) for name in clients]


def round_ratios(case: Case, methods: Sequence[str], repetitions: int, *, epochs: int) -> list[Figure]:
    """Measure a whole local round of each method, prototype pass included, against FedAvg's."""
    clients = {name: Client(case, name, epochs=epochs) for name in dict.fromkeys([BASE, *methods])}
    seconds = interleaved({name: client.round for name, client in clients.items()}, repetitions, warm_up=0)
    compared = f"{CPU} of {epochs} local epochs with the prototype pass, where the method has one / of FedAvg's"
    where = f"{case}, {case.batches} batches"
    return [Figure.of("round_ratio", name, where, compared, ratios(seconds, name, BASE)) for name in clients]


def prototype_pass_ratio(case: Case, repetitions: int) -> list[Figure]:
    """Measure the prototype pass against a training epoch of FedMR on the same batches."""
    client = Client(case, "fedmr")
    seconds = interleaved({"pass": client.prototype_pass, "epoch": client.epochs}, repetitions)
    compared = f"{CPU} of the prototype pass / of a training epoch"
    return [Figure.of("prototype_pass_ratio", case.model, str(case), compared, ratios(seconds, "pass", "epoch"))]


def private_step_ratio(case: Case, repetitions: int) -> list[Figure]:
    """Measure a step of private training against a plain one, of FedMR."""
    client = Client(case, "fedmr")
    client.prepare_steps()
    seconds = interleaved({"private": client.private_step, "plain": client.step}, repetitions)
    compared = f"{CPU} of a step with clipped and noisy gradients (train.private) / of a plain step"
    return [Figure.of("private_step_ratio", case.model, str(case), compared, ratios(seconds, "private", "plain"))]


def memory_ratios(case: Case, methods: Sequence[str]) -> list[Figure]:
    """Measure the peak of all tensors in memory, the network's own included, against FedAvg's."""
    peaks = {name: peak_bytes(case, name) for name in dict.fromkeys([BASE, *methods])}
    compared = "peak bytes of all tensors in two steps / FedAvg's (exact, no spread)"
    return [Figure.of("memory_ratio", name, str(case), compared, [peak / peaks[BASE]]) for name, peak in peaks.items()]


def peak_bytes(case: Case, method: str) -> int:
    """Return the peak of the memory that tensors hold while a client starts and takes two steps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        client = Client(case, method)
        client.prepare_steps()
        for _ in range(2):
            client.step()
    recorded: Any = profiler.profiler
    events = recorded.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held = torch.tensor([nbytes for _, nbytes in changes]).cumsum(0)
    return int(held.max())
