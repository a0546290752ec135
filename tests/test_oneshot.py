"""A run without rounds: the initial model, one exchange, and the head of pooled data."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.jobs.benchmark import benchmark_sites, clients_of
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.models.model_file import load_model
from fedmr_med.report.document import write_report
from fedmr_med.runner import Federation
from fedmr_med.server.chain import BEST_MODEL, Chain
from fedmr_med.server.state import WEIGHT, initial_state
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.benchmarks import tiny_job
from tests.helpers.errors import raises
from tests.helpers.small import OPEN, SMALL

torch.set_num_threads(1)
ONESHOT = {"federation.rounds": 0, "head.exchange": "last", "head.shrinkage": 0.1}


def demo_federation(folder: Path) -> Federation:
    """Return a job without rounds on the demo of two hospitals."""
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=OPEN)
        for name in ("bcn", "rosendahl")
    }
    demo = {**SMALL, "federation": {"rounds": 0, "min_sites": 1}, "head": {"exchange": "last"}}
    return Federation(isic_job("fedavg").model_copy(update={"demo": demo}), sites, folder)


def test_one_exchange_makes_the_head_of_the_initial_model(tmp_path: Path) -> None:
    federation = demo_federation(tmp_path)
    state = federation.run()
    history = state.history
    assert (state.round, history.rounds, federation.costs.tasks) == (0, (), 0)
    assert not history.evaluations, "nobody scores a classifier that nothing has trained"
    untouched = initial_state(federation.job).model
    assert all(np.array_equal(state.model[name], untouched[name]) for name in untouched)
    assert history.head is not None
    assert history.head.evaluation.pooled.balanced_accuracy > 0.2 + 1 / 8
    assert history.head.bytes_down == 2 * sum(array.nbytes for array in state.model.values())
    assert (history.best.round, history.best.head) == (0, True)
    saved = load_model(tmp_path / BEST_MODEL)
    assert saved.round == 0
    assert np.array_equal(saved.model[WEIGHT], state.head[WEIGHT])


def test_the_page_about_it_names_the_sites_that_scored_the_head(tmp_path: Path) -> None:
    federation = demo_federation(tmp_path)
    state = federation.run()
    Chain(tmp_path, federation.job).write_results(state)
    write_report([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert ">bcn<" in page
    assert f"{state.history.head.evaluation.sites['bcn'].balanced_accuracy:.3f}"[1:] in page


def test_a_run_that_was_stopped_before_its_exchange_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = demo_federation(tmp_path / "whole").run()

    def stop(self: object, task: TrainTask) -> SiteReply:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("fedmr_med.site.hospital.Hospital.head_statistics", stop)
        demo_federation(tmp_path / "stopped").run()
    resumed = demo_federation(tmp_path / "stopped").run()
    assert np.array_equal(resumed.head[WEIGHT], whole.head[WEIGHT])
    assert resumed.history.head.evaluation == whole.history.head.evaluation
    # And one that has ended is not done again.
    monkeypatch.setattr("fedmr_med.site.hospital.Hospital.head_statistics", stop)
    assert np.array_equal(demo_federation(tmp_path / "stopped").run().head[WEIGHT], whole.head[WEIGHT])


def dealt(split: str, clients: int | None, data: Path, folder: Path) -> dict[str, np.ndarray]:
    """Return the head of the one-shot job with the same images dealt to clients in some way."""
    job = tiny_job("fedavg", split=split, clients=clients, changes=ONESHOT)
    state = Federation(job, benchmark_sites(clients_of("fmnist", split, clients), root=data), folder).run()
    return {name: array.astype(np.float64) for name, array in state.head.items()}


@pytest.fixture(scope="module")
def pooled(fmnist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The head of one site that holds all images."""
    return dealt("iid", 1, fmnist, tmp_path_factory.mktemp("pooled"))


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(kind=st.sampled_from(["iid", "dir1", "P5C2", "P10C2"]), clients=st.integers(2, 8))
def test_the_head_does_not_depend_on_who_holds_what(
    fmnist: Path, pooled: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory, kind: str, clients: int
) -> None:
    number = None if kind.startswith("P") else clients
    head = dealt(kind, number, fmnist, tmp_path_factory.mktemp("run"))
    for name, expected in pooled.items():
        assert np.linalg.norm(head[name] - expected) < 1e-6 * np.linalg.norm(expected)


def test_a_job_without_rounds_has_to_say_what_it_is_for() -> None:
    with raises("config.conflict", "federation.rounds"):
        isic_job("fedavg").override({"federation": {"rounds": 0}, "head": {"exchange": None}})
