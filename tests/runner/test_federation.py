"""The in-process runner: the same objects as a FLARE job, sampling, resumption, memory."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med import data
from fedmr_med.errors import FedMRError
from fedmr_med.exchange.plan import draw_sites
from fedmr_med.jobs.benchmark import benchmark_sites
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.runner import Federation
from fedmr_med.server.chain import CHECKPOINT
from fedmr_med.server.state import GlobalState, initial_state
from fedmr_med.sites import DemoSource, FlambyIsicSource, SiteConfig
from tests.helpers import REPOSITORY
from tests.helpers.archives import write_mini
from tests.helpers.benchmarks import equal_states, tiny_federation, tiny_job
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, OPEN, SMALL, small_job


@dataclass(frozen=True)
class Finished:
    """A run of the tiny job: its end, the rounds that it told of, and the sites whose data it opened."""

    federation: Federation
    state: GlobalState
    rounds: list[int]
    opened: list[SiteConfig]


@pytest.fixture(scope="module")
def finished(fmnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    rounds: list[int] = []
    opened: list[SiteConfig] = []
    load = data.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", lambda site, *args, **kwargs: opened.append(site) or load(site, *args, **kwargs))
        federation = tiny_federation(tiny_job(), fmnist, tmp_path_factory.mktemp("finished"))
        return Finished(federation, federation.run(lambda s: rounds.append(s.round)), rounds, opened)


def test_every_round_is_scored_on_the_whole_test_set(finished: Finished) -> None:
    state = finished.state
    assert finished.rounds == [1, 2, 3]
    assert len(finished.opened) == 5, "the data of a site is opened once for all rounds"
    assert [e.round for e in state.history.evaluations] == [1, 2, 3]
    assert {e.pooled.samples for e in state.history.evaluations if e.pooled} == {40}
    assert all(set(record.sites) == {f"client-{k}" for k in range(1, 6)} for record in state.history.rounds)


@pytest.mark.slow
def test_scores_at_the_server_equal_the_pooled_scores_of_the_sites(
    finished: Finished, fmnist: Path, tmp_path: Path
) -> None:
    central, local = finished.state, tiny_federation(tiny_job(), fmnist, tmp_path, central=False).run()
    assert all(np.array_equal(central.model[name], local.model[name]) for name in central.model)
    pooled = {e.round: e.pooled for e in local.history.evaluations}
    assert {e.round: e.pooled for e in central.history.evaluations} == {r: pooled[r] for r in (1, 2, 3)}
    assert pooled.keys() == {0, 1, 2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedmr"])
def test_a_job_of_secure_sums_is_scored_at_the_server_too(method: str, fmnist: Path, tmp_path: Path) -> None:
    """The server's own test set is nobody's secret: its scores are those of the model, without a secure sum."""
    job = tiny_job(method, changes={"federation.secure": "all", "federation.min_sites": 3, "head.exchange": "last"})
    state = tiny_federation(job, fmnist, tmp_path).run()
    assert [e.pooled.samples for e in state.history.evaluations if e.pooled] == [40, 40, 40]
    assert state.history.head is not None
    assert state.history.head.evaluation is not None
    assert state.history.head.evaluation.pooled is not None


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedmr", "moon", "feddyn", "feddc"])
def test_a_run_that_was_stopped_goes_on_to_the_same_result(method: str, fmnist: Path, tmp_path: Path) -> None:
    job = tiny_job(method, split="P6C2", changes={"federation.sites_per_round": 4, "federation.min_sites": 4})
    whole = tiny_federation(job, fmnist, tmp_path / "whole").run()

    class StopError(Exception):
        pass

    def stop_in_round_2(state: GlobalState) -> None:
        if state.round == 1:
            raise StopError

    folder = tmp_path / "stopped"
    federation = tiny_federation(job, fmnist, folder)
    with pytest.raises(StopError):
        federation.run(stop_in_round_2)
    # The second round ends after its clients have written their state and before it is on disk.
    checkpoint = (folder / CHECKPOINT).read_bytes()
    with pytest.raises(StopError):
        tiny_federation(job, fmnist, folder).run(lambda state: (_ for _ in ()).throw(StopError))
    (folder / CHECKPOINT).write_bytes(checkpoint)
    rounds = []
    again = tiny_federation(job, fmnist, folder).run(lambda s: rounds.append(s.round))
    assert rounds == [2, 3]
    assert equal_states(again, whole)


def test_a_finished_run_is_not_run_again(finished: Finished, fmnist: Path) -> None:
    again = tiny_federation(tiny_job(), fmnist, finished.federation.folder)
    assert equal_states(again.run(), finished.state)
    assert again.costs.tasks == 0


def test_a_folder_of_another_configuration_is_refused(finished: Finished, fmnist: Path) -> None:
    with raises("checkpoint.other-settings"):
        tiny_federation(tiny_job(changes={"train.lr": 0.5}), fmnist, finished.federation.folder).run()


def test_only_the_drawn_sites_take_part(fmnist: Path, tmp_path: Path) -> None:
    job = tiny_job(split="P20C2", changes={"federation.sites_per_round": 3, "federation.min_sites": 3})
    state = tiny_federation(job, fmnist, tmp_path).run()
    names = [f"client-{k}" for k in range(1, 21)]
    drawn = [draw_sites(names, 3, seed=0, round_number=r) for r in range(3)]
    assert [sorted(record.sites) for record in state.history.rounds] == drawn
    assert len({tuple(sites) for sites in drawn}) > 1
    for number, sites in enumerate(drawn):
        assert all(state.accepted[site] >= number for site in sites)


def test_a_client_that_opted_out_is_absent_from_the_prototypes(fmnist: Path, tmp_path: Path) -> None:
    state = tiny_federation(tiny_job(), fmnist, tmp_path, share=0.4).run()
    shared = [site for site, part in state.history.rounds[-1].sites.items() if part.shared_classes]
    assert len(shared) == 2
    # P5C2 deals every class to one client, so two sharing clients make four prototypes.
    assert int(state.prototypes.available.sum()) == 4
    assert len(state.history.rounds[-1].sites) == 5


def test_replies_that_diverged_end_the_run_with_the_reason(fmnist: Path, tmp_path: Path) -> None:
    job = tiny_job("fedavg", changes={"train.lr": 100, "train.updates": 30})
    with pytest.raises(FedMRError, match=r"Round 1 has 0 usable replies.*client-1.*over federation\.max_norm"):
        tiny_federation(job, fmnist, tmp_path).run()


def test_federations_that_cannot_run_are_refused_at_once(fmnist: Path, tmp_path: Path) -> None:
    with raises("config.conflict", "federation.min_sites"):
        Federation(tiny_job(), dict([*benchmark_sites(5, root=fmnist).items()][:2]), tmp_path)
    with raises("data.missing"):
        tiny_federation(tiny_job(), fmnist / "absent", tmp_path)
    with raises("data.too-few"):
        tiny_federation(tiny_job(split="P120C1"), fmnist, tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_engine_knows_its_own_cost(finished: Finished) -> None:
    costs = finished.federation.costs
    assert costs.tasks == 15
    assert set(costs.spent) == {"train", "prototypes", "score", "head"}
    assert all(seconds > 0 for seconds in costs.spent.values())
    assert 0 < costs.engine_ms_per_task * costs.tasks / 1e3 < costs.wall


SCRIPT = """
import json, sys, torch
from pathlib import Path
from tests.helpers.benchmarks import tiny_federation, tiny_job
torch.set_num_threads(1)
clients, method = int(sys.argv[1]), sys.argv[2]
job = tiny_job(method, split=f"P{clients}C2", changes={
    "federation.sites_per_round": 5, "federation.min_sites": 5, "federation.rounds": int(sys.argv[5]),
    **json.loads(sys.argv[6])})
tiny_federation(job, Path(sys.argv[3]), Path(sys.argv[4])).run(lambda s: print(s.round, flush=True))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) // 1024)
"""


def start(
    clients: int, method: str, data: Path, folder: Path, rounds: int, changes: dict[str, Any] | None = None
) -> subprocess.Popen[str]:
    arguments = [str(clients), method, str(data), str(folder), str(rounds), json.dumps(changes or {})]
    command = [sys.executable, "-c", SCRIPT, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    root = REPOSITORY
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_thousand_clients_need_the_memory_of_a_hundred_within_a_tenth(tmp_path: Path) -> None:
    write_mini("fmnist", tmp_path, per_class=250, test_per_class=1000)  # as many as the real test set: 10,000
    peaks = []
    # Activations large enough to see whether their memory is used again.
    larger = {"model.options": {}, "train.batch_size": 128}
    for clients in (100, 1000):
        output, _ = start(clients, "feddc", tmp_path, tmp_path / str(clients), 4, larger).communicate()
        peaks.append(int(output.split()[-1]))
    assert 0.9 < peaks[1] / peaks[0] < 1.1, f"{peaks} MB"
    kept = sorted((tmp_path / "1000" / "client_state").iterdir())
    assert len(kept) <= 20, "only the clients that took part keep something"


@pytest.mark.slow
def test_kill_in_the_middle_and_run_again(fmnist: Path, tmp_path: Path) -> None:
    rounds = 8
    folder = tmp_path / "killed"
    process = start(10, "feddyn", fmnist, folder, rounds)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 3:
            break
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    output, _ = start(10, "feddyn", fmnist, folder, rounds).communicate()
    assert int(output.split()[0]) > 3, "it went on"
    changes = {"federation.sites_per_round": 5, "federation.min_sites": 5, "federation.rounds": rounds}
    job = tiny_job("feddyn", split="P10C2", changes=changes)
    whole = tiny_federation(job, fmnist, tmp_path / "whole").run()
    assert equal_states(tiny_federation(job, fmnist, folder).run(), whole)
    assert not equal_states(initial_state(job), whole)


def test_on_the_demo_a_job_has_its_settings_for_the_demo(tmp_path: Path) -> None:
    job = isic_job("fedavg").model_copy(update={"demo": {**SMALL, "federation": {"rounds": 1, "min_sites": 2}}})
    sites = {f"center-{c}": SiteConfig(data=DemoSource(source="demo", center=c), policy=OPEN) for c in (4, 5)}
    federation = Federation(job, sites, tmp_path)
    assert federation.job == job.for_demo()
    assert federation.run().round == 1
    mixed = sites | {"bcn": SiteConfig(data=FlambyIsicSource(source="flamby_isic", center=0, root=tmp_path))}
    with raises("data.missing", "data.root"):
        Federation(job, mixed, tmp_path / "mixed")


def test_if_nobody_shares_each_site_trains_with_its_own_prototypes(tmp_path: Path) -> None:
    sites = {f"center-{c}": SiteConfig(data=DemoSource(source="demo", center=c), policy=CLOSED) for c in (4, 5)}
    state = Federation(small_job(), sites, tmp_path).run()
    assert not state.prototypes.available.any()
    assert state.head == {}
    first, second = state.history.rounds
    assert all(site.terms["anchor"] == 0 for site in first.sites.values())
    assert all(site.terms["anchor"] > 0 for site in second.sites.values())
