"""Jobs in FLARE's real simulator: opt-out on the wire, reproducibility, what a person sees.

Small pictures and a small network: what is tested here is the federation, not the learning.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from fedmr_med import methods, models
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.jobs.folder import INITIAL_MODEL, write_job
from fedmr_med.models.job_network import build_network
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.runner import Federation
from fedmr_med.schema import dump_yaml
from fedmr_med.server.state import GlobalState, with_weights
from fedmr_med.site.training import class_sums
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.wire import codec
from tests.helpers.pictures import write_flamby_folder
from tests.helpers.simulator import Simulation, record_wire, simulate, write_test_job
from tests.helpers.small import CLOSED, initial_state, lenient, small_hospital, small_job, task_for
from tests.helpers.transports import demo_sites, outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SHARES = {"bcn": "true", "msk": "false", "vienna-dias": "[NV]"}
CENTERS = {"bcn": 0, "msk": 4, "vienna-dias": 5}
JOB = small_job(federation={"rounds": 2, "min_sites": 3})


def site_yaml(site: str, share: str) -> str:
    policy = f"{{share_prototypes: {share}, share_metrics: per_class, min_cell_count: 1, training: null}}"
    return f"data: {{source: flamby_isic, center: {CENTERS[site]}}}\npolicy: {policy}\n"


def run(folder: Path, *options: str, delays: dict[str, float] | None = None) -> tuple[Simulation, Path]:
    """Run the small job; return the finished run and the folder with the recorded replies."""
    sites = {site: site_yaml(site, share) for site, share in SHARES.items()}
    job_folder, records = write_test_job(folder / "job", JOB, sites), folder / "records"
    record_wire(job_folder, records, delays)
    done = simulate(job_folder, folder / "workspace", *options)
    assert done.exit_code == 0, done.output[-3000:]
    return done, records


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Simulation, Path]:
    """msk has opted out, vienna-dias shares one class, and bcn all: it is the positive control."""
    return run(tmp_path_factory.mktemp("simulated"), "-t", "3")


def own_sums(site: str, folder: Path) -> ClassSums:
    """What the site's class sums are after its first round, whether or not it shares them."""
    hospital = small_hospital(site, JOB, folder)
    hospital.train(task_for(initial_state(JOB), JOB))
    return class_sums(hospital.network, hospital.batches.plain, JOB.task.num_classes)


def model_hash(state: GlobalState) -> str:
    digest = hashlib.sha256()
    for name in sorted(state.model):
        digest.update(name.encode() + state.model[name].tobytes())
    digest.update(state.prototypes.means.numpy().tobytes())
    return digest.hexdigest()


def test_the_wire_of_an_opted_out_site_holds_no_prototype(simulated: tuple[Simulation, Path], tmp_path: Path) -> None:
    done, records = simulated
    shared = done.state(JOB).history.rounds[0].sites
    for site in ("msk", "bcn"):
        sums, sent = own_sums(site, tmp_path), (records / f"{site}-0").read_bytes()
        classes = [c for c in range(8) if sums.counts[c] > 10]
        assert classes
        rows = [sums.sums[c].float().numpy().tobytes() in sent for c in classes]
        keys = [key in sent for key in (b"prototypes", b"sums", b"counts")]
        sharing = site == "bcn"  # where the same search must find them
        assert {*rows, *keys} == {sharing}, site
        names = tuple(JOB.task.class_names[c] for c in classes)
        assert shared[site].shared_classes == (names if sharing else ())


def test_the_opted_out_site_is_absent_from_the_prototypes_and_still_trains_with_them(
    simulated: tuple[Simulation, Path],
) -> None:
    nvflare_fobs_initialize()
    done, records = simulated
    state = done.state(JOB)
    means = []
    for round_number in (0, 1):
        replies = [
            from_shareable(fobs.loads((records / f"{site}-{round_number}").read_bytes()))
            for site in ("bcn", "vienna-dias")
        ]
        rows = [dxo.data[codec.PROTOTYPES].data for dxo in replies]
        means.append(
            {
                c: sum(r["sums"][c].astype(np.float64) for r in rows) / sum(int(r["counts"][c]) for r in rows)
                for c in range(8)
                if any(r["counts"][c] for r in rows)
            }
        )
    inertia = methods.build(JOB.method).prototype_inertia
    for c, mean in means[1].items():
        expected = inertia * means[0][c] + (1 - inertia) * mean
        np.testing.assert_allclose(state.prototypes.means[c].numpy(), expected, rtol=1e-5, atol=1e-6)
    record = state.history.rounds[1].sites["msk"]
    assert record.shared_classes == ()
    assert record.terms["anchor"] > 0


def test_opting_out_class_by_class(simulated: tuple[Simulation, Path]) -> None:
    done, _ = simulated
    assert done.state(JOB).history.rounds[0].sites["vienna-dias"].shared_classes == ("NV",)


@pytest.mark.nightly
def test_the_number_of_threads_and_the_order_of_arrival_change_nothing(
    simulated: tuple[Simulation, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    together, _ = simulated
    bare, _ = run(tmp_path_factory.mktemp("bare"))
    first, last = _arrivals(together.output)[0], _arrivals(together.output)[-1]
    delayed, _ = run(tmp_path_factory.mktemp("delayed"), "-t", "3", delays={first: 6.0, last: 0.0})
    assert _arrivals(delayed.output)[-1] == first, "the delay must have changed who answered last"
    assert model_hash(bare.state(JOB)) == model_hash(together.state(JOB)) == model_hash(delayed.state(JOB))


def _arrivals(output: str) -> list[str]:
    """Sites in the order in which their first reply was taken."""
    lines = [line for line in output.splitlines() if "round 1/2 ·" in line]
    return [line.split("·")[1].strip() for line in lines]


@pytest.mark.nightly
def test_a_frozen_backbone_travels_once_and_gives_the_runners_model(tmp_path: Path) -> None:
    job = JOB.override({"method": {"name": "fedavg"}, "model": {"freeze_backbone": True}, "head": {"exchange": "last"}})
    sites = {site: site_yaml(site, "true") for site in CENTERS}
    cache = {"FEDMR_MED_CACHE": str(tmp_path / "cache")}
    done = simulate(write_test_job(tmp_path / "job", job, sites), tmp_path / "workspace", "-t", "3", environment=cache)
    assert done.exit_code == 0, done.output[-3000:]
    state = done.state(job)
    first, second = ([site.bytes_down for site in record.sites.values()] for record in state.history.rounds)
    assert {a - b for a, b in zip(first, second, strict=True)} == {state.backbone.size}
    same = Federation(job, demo_sites(*CENTERS), tmp_path / "runner").run()
    assert model_hash(state) == model_hash(same)
    assert all(np.array_equal(state.head[name], array) for name, array in same.head.items())


def test_what_a_person_sees(simulated: tuple[Simulation, Path]) -> None:
    done, _ = simulated
    for site in CENTERS:
        for number in (1, 2):
            lines = [line for line in done.output.splitlines() if f"round {number}/2 · {site}" in line]
            assert len(lines) == 1, f"one line per hospital and round, not {lines}"
    for text in ("Mean recall", "pooled", "What each hospital took part with", "checkpoint:", "DEMO"):
        assert text in done.output
    assert (done.chain / "results.json").exists()
    best = torch.load(done.chain / "best_model.pt", weights_only=True)
    history = done.state(JOB).history
    scores = {e.round: e.pooled.balanced_accuracy for e in history.evaluations}
    assert sorted(scores) == [0, 1, 2], "the last round's model is scored too"
    with_head = history.head.evaluation.pooled.balanced_accuracy
    assert best["balanced_accuracy"] == max(*scores.values(), with_head)
    network = models.build(JOB.model.name, num_classes=8)
    models.load_arrays(network, {name: tensor.numpy() for name, tensor in best["model"].items()})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(lambda text: text + "polcy: {}\n", "polcy", id="unknown key"),
        pytest.param(
            lambda text: text.replace("center: 4", "center: 4, root: /nowhere"),
            "/nowhere",
            id="missing folder",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_site_that_cannot_take_part_ends_the_job_with_a_reason(
    tmp_path: Path, spoil: Callable[[str], str], message: str
) -> None:
    sites = {"msk": spoil(site_yaml("msk", "true"))}
    job = JOB.override({"federation": {"min_sites": 1}})
    done = simulate(write_test_job(tmp_path / "job", job, sites), tmp_path / "workspace")
    assert done.exit_code != 0
    assert message in done.output
    assert not (done.chain / "checkpoint.pt").exists()


@pytest.mark.nightly
def test_a_federation_in_which_only_some_sites_have_images_does_not_start(tmp_path: Path) -> None:
    write_flamby_folder(tmp_path / "isic")
    sites = {site: site_yaml(site, "true") for site in CENTERS}
    sites["msk"] = f"data: {{source: flamby_isic, center: 4, root: {tmp_path}/isic}}\n"
    job_folder = write_test_job(tmp_path / "job", isic_job("fedmr").override({"federation": {"min_sites": 1}}), sites)
    done = simulate(job_folder, tmp_path / "workspace", "-t", "3")
    assert done.exit_code != 0
    assert "No images of bcn, vienna-dias, while other sites have theirs" in done.output
    assert "round 1/" not in done.output


@pytest.mark.nightly
def test_statistics_are_summed_securely_to_the_runners_model(tmp_path: Path) -> None:
    """Each step of a sum may be another process, so all that a site needs for it is on its disk."""
    settings = {"rounds": 2, "min_sites": 3, "secure": "statistics"}
    job = small_job(federation=settings, head={"exchange": "none"})
    sites = {site: site_yaml(site, "true") for site in CENTERS}
    done = simulate(write_test_job(tmp_path / "job", job, sites), tmp_path / "workspace", "-t", "3")
    assert done.exit_code == 0, done.output[-3000:]
    state = done.state(job)
    assert [record.secure.sites for record in state.history.rounds if record.secure] == [tuple(sorted(CENTERS))] * 2
    expected = Federation(job, demo_sites(*CENTERS), tmp_path / "runner").run()
    assert all(np.array_equal(state.model[name], expected.model[name]) for name in state.model)
    assert state.prototypes.means.equal(expected.prototypes.means)


ALIKE = {
    "moon": small_job("fedavg", method={"name": "moon"}, head={"exchange": "last"}),
    "feddyn": small_job("fedavg", method={"name": "feddyn"}, head={"exchange": "last"}),
    "one-shot": small_job("fedmr", federation={"rounds": 0}, head={"exchange": "last"}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALIKE)
def test_simulator_and_runner_come_to_the_same(name: str, tmp_path: Path) -> None:
    """Each task may be another process in the simulator, so all that a site goes on with is on its disk."""
    job, sites = ALIKE[name], {site: site_yaml(site, share) for site, share in SHARES.items()}
    done = simulate(write_test_job(tmp_path / "job", job, sites), tmp_path / "workspace", "-t", "3")
    assert done.exit_code == 0, done.output[-3000:]
    state, sharing_one = done.state(job), lenient(share_prototypes=("NV",), share_metrics="per_class")
    assert state.head
    assert state.round == job.federation.rounds
    configs = demo_sites(*CENTERS, msk=CLOSED, vienna_dias=sharing_one)
    assert outcome(state) == outcome(Federation(job, configs, tmp_path / "runner").run())


def test_simulator_and_runner_agree_on_half_precision_and_on_a_site_that_refuses(tmp_path: Path) -> None:
    """vienna-dias keeps its default training floors, which three steps a round do not meet."""
    job = small_job(federation={"rounds": 2, "min_sites": 2, "wire": "float16", "grace_seconds": 60})
    refusing = "data: {source: flamby_isic, center: 5}\npolicy: {share_prototypes: true, share_metrics: per_class}\n"
    sites = {site: site_yaml(site, "true") for site in CENTERS} | {"vienna-dias": refusing}
    done = simulate(write_test_job(tmp_path / "job", job, sites), tmp_path / "workspace", "-t", "3")
    assert done.exit_code == 0, done.output[-3000:]
    state = done.state(job)
    with_floors = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1)
    configs = demo_sites(*CENTERS, vienna_dias=with_floors)
    same = Federation(job, configs, tmp_path / "runner").run()
    assert [record.refused.keys() for record in state.history.rounds] == [{"vienna-dias"}] * 2
    assert [record.refused for record in state.history.rounds] == [record.refused for record in same.history.rounds]
    assert model_hash(state) == model_hash(same)
    assert state.head and all(np.array_equal(state.head[name], array) for name, array in same.head.items())
    assert state.history.evaluations == same.history.evaluations
    assert state.history.head.evaluation == same.history.head.evaluation


def test_weights_that_a_job_brings_reach_the_server_alone_and_start_the_chain(tmp_path: Path) -> None:
    job = small_job("fedavg", federation={"rounds": 1, "min_sites": 1})
    weights = tmp_path / "weights.pt"
    torch.save(build_network(job.override({"seed": 7})).state_dict(), weights)
    site = SiteConfig(data=DemoSource(source="demo", center=5), policy=lenient())
    write_job(job, tmp_path / "job", {"vienna-dias": dump_yaml(site)}, initial_model=weights)
    done = simulate(tmp_path / "job", tmp_path / "workspace", "-t", "1")
    assert done.exit_code == 0, done.output[-3000:]
    assert not list((tmp_path / "workspace" / "vienna-dias").rglob(INITIAL_MODEL))
    torch.set_num_threads(1)
    expected = Federation(job, {"vienna-dias": site}, tmp_path / "runner", initial_model=weights).run()
    assert model_hash(done.state(with_weights(job, weights))) == model_hash(expected)
