"""What a round costs beside training: a process to start, the runner's own time per task, and bytes on the wire."""

import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.jobs.catalog import job_for
from fedmr_med.lab.datasets.synthetic import write_synthetic
from fedmr_med.lab.perf.measure import CPU, Figure, children, interleaved, ratios
from fedmr_med.lab.perf.workload import Case, Client
from fedmr_med.models import state_arrays
from fedmr_med.prototypes import ClassSums
from fedmr_med.runner import Federation
from fedmr_med.server.state import initial_state, train_task
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire.codec import encode_reply, encode_task
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply

WIRES = ("float32", "float16")
CLIENT = "import fedmr_med.flare.executor"
BASE = "import torch, nvflare.apis.executor"


def runner_figure(folder: Path, *, clients: int, rounds: int) -> list[Figure]:
    """Measure what the runner itself costs per client task: all but training, prototype pass and scoring."""
    data = write_synthetic(DATASETS.get("fmnist"), folder / "data")
    changes = {"train.updates": 2, "train.batch_size": 8, "federation.rounds": rounds}
    job = job_for("fmnist", "fedmr", split="iid", clients=clients, model="small_cnn", changes=changes)
    sites = benchmark_sites(clients, root=data, holds_test=False)
    for run in ("to-warm-up", "that-counts"):
        federation = Federation(job, sites, folder / run)
        federation.run()
    case = f"small_cnn, {clients} clients, {rounds} rounds"
    compared = "milliseconds of wall time per train task, without training, prototype pass and scoring"
    return [Figure.of("runner_ms_per_task", "runner", case, compared, [federation.costs.engine_ms_per_task])]


def demo_hospitals() -> dict[str, SiteConfig]:
    """Return the six hospitals on the demo, with the policy of a site that says nothing."""
    return {name: SiteConfig(data=DemoSource(source="demo", center=center)) for center, name in enumerate(HOSPITALS)}


def secure_figure(folder: Path, job: JobConfig, *, rounds: int) -> list[Figure]:
    """Measure the share of a round that the secure sum of its statistics takes, for each round of a job on the demo."""
    settings = {"rounds": rounds, "min_sites": len(HOSPITALS), "secure": "statistics"}
    job = job.override({"federation": settings, "head": {"exchange": "none"}})
    sites = demo_hospitals()
    records = Federation(job, sites, folder).run().history.rounds
    shares = [record.secure.seconds / record.seconds for record in records if record.secure is not None]
    case = f"{job.name}, {job.model.name}, {len(sites)} demo hospitals one after the other, {rounds} rounds"
    compared = "wall time of a round's secure sum / of the round"
    return [Figure.of("secure_share", "statistics", case, compared, shares)]


def wire_figures(job: JobConfig) -> list[Figure]:
    """Return the bytes a site receives and sends in one round, by what stands for the parameters on the wire."""
    case = f"{job.model.name}, {job.method.name}"
    arrays = "bytes of all arrays of one task and one reply that shares every class"
    figures = [
        Figure.of("wire_bytes", name, case, arrays, [round_bytes(job.override({"federation": {"wire": name}}))])
        for name in WIRES
    ]
    whole, deflated = difference_bytes(job)
    text = f"{arrays}, its model as the difference to the received one after three steps, deflated"
    return [*figures, Figure.of("wire_bytes", "difference", case, text, [round_bytes(job) - whole + deflated])]


def round_bytes(job: JobConfig) -> int:
    """Return the bytes of one task and of one reply that shares every prototype."""
    state = initial_state(job)
    halved = job.federation.halved(state.parameters)
    task = encode_task(train_task(state, job, "perf"), halved=halved)
    classes, size = state.prototypes.means.shape
    shared = ClassSums.zeros(classes, size)
    shared.counts.fill_(1)
    reply = SiteReply("site", 0, classes, job.digest(), state.model).with_statistic(PROTOTYPES, shared)
    return task.size + encode_reply(TRAIN, reply, halved=halved).size


def difference_bytes(job: JobConfig) -> tuple[int, int]:
    """Return the bytes of a trained model, and of its difference to the received one, deflated.

    As it stands, a difference has as many bytes as the model: only a compression could make it smaller.
    """
    client = Client(Case(job.model.name, 32, batch_size=8, options=job.model.options), job.method.name)
    client.prepare_steps()
    received = state_arrays(client.network)
    for _ in range(3):
        client.step()
    trained = state_arrays(client.network)
    deflated = sum(len(zlib.compress((trained[name] - received[name]).tobytes(), 1)) for name in trained)
    return sum(array.nbytes for array in trained.values()), deflated


def import_figures(repetitions: int) -> list[Figure]:
    """Measure the imports of a client process, in seconds and against those it cannot do without."""
    candidates = {code: partial(_run, code) for code in (CLIENT, BASE)}
    seconds = interleaved(candidates, repetitions, clock=children)
    return [
        Figure.of("import_seconds", "client", CLIENT, f"seconds of {CPU}, interpreter included", seconds[CLIENT]),
        Figure.of("import_ratio", "client", CLIENT, f"{CPU} / of `{BASE}`", ratios(seconds, CLIENT, BASE)),
    ]


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
