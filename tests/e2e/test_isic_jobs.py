"""The two ISIC jobs as they are checked in: they learn on the demo, and run on real images where there are some."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.config import load_job
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.data.prepare_isic import prepare_isic
from fedmr_med.runner import Federation
from tests.helpers import REPOSITORY
from tests.helpers.simulator import Simulation, change_job, simulate, without_floors
from tests.helpers.small import CLOSED
from tests.helpers.transports import demo_sites

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CHANCE = 1 / 8


def run(name: str, folder: Path, *options: str) -> Simulation:
    done = simulate(REPOSITORY / "jobs" / name, folder / "workspace", *options)
    assert done.exit_code == 0, done.output[-3000:]
    return done


@pytest.mark.parametrize("name", ["isic_fedmr", pytest.param("isic_fedavg", marks=pytest.mark.nightly)])
def test_six_hospitals_run_one_round_in_the_simulator(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(REPOSITORY / "jobs" / name, folder)
    without_floors(folder)
    job = change_job(folder, demo=True, train={"epochs": None, "updates": 2}, federation={"rounds": 1})
    done = simulate(folder, tmp_path / "workspace", "-t", "6")
    assert done.exit_code == 0, done.output[-3000:]
    history = done.state(job).history
    (record,) = history.rounds
    assert set(record.sites) == set(HOSPITALS)
    assert set(history.evaluations[-1].pooled_sites) == set(HOSPITALS) - {"msk"}, "msk shares no metrics"
    sharing = {site for site, part in record.sites.items() if part.shared_classes}
    assert sharing == (set(HOSPITALS) - {"msk"} if name == "isic_fedmr" else set())


def test_the_demo_of_isic_fedmr_is_learned_by_a_small_network(tmp_path: Path) -> None:
    """In the in-process runner, which gives the simulator's model bit for bit; every night by the job's own network."""
    job = load_job(REPOSITORY / "jobs" / "isic_fedmr" / "app" / "config" / "fedmr.yaml").for_demo()
    small = {"model": {"name": "small_cnn", "options": {}}, "task": {"image_size": 24}, "federation": {"rounds": 4}}
    state = Federation(job.override(small), demo_sites(*HOSPITALS, msk=CLOSED), tmp_path).run()
    terms = [record.sites["bcn"].terms["classification"] for record in state.history.rounds]
    assert terms[-1] < terms[0]
    assert state.history.evaluations[-1].pooled.balanced_accuracy > 3 * CHANCE
    assert state.history.head is not None
    assert state.history.head.evaluation is not None
    assert state.history.head.evaluation.pooled.balanced_accuracy > 3 * CHANCE


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["isic_fedmr", "isic_fedavg"])
def test_six_hospitals_learn_on_the_demo(name: str, tmp_path: Path) -> None:
    job = load_job(REPOSITORY / "jobs" / name / "app" / "config" / "fedmr.yaml").for_demo()
    done = run(name, tmp_path, "-t", "6")
    history = done.state(job).history
    assert len(history.rounds) >= 3
    for record in history.rounds:
        assert set(record.sites) == set(HOSPITALS)
    final = history.evaluations[-1]
    assert final.round == len(history.rounds)
    assert final.pooled.balanced_accuracy >= 0.25
    assert set(final.pooled_sites) == set(HOSPITALS) - {"msk"}, "msk shares no metrics"
    sharing = {site for site, part in history.rounds[0].sites.items() if part.shared_classes}
    assert sharing == (set(HOSPITALS) - {"msk"} if name == "isic_fedmr" else set())


@pytest.mark.nightly
def test_with_learning_rate_zero_it_stays_at_chance(tmp_path: Path) -> None:
    folder = tmp_path / "isic_fedmr"
    shutil.copytree(REPOSITORY / "jobs" / "isic_fedmr", folder)
    without_floors(folder)
    job = change_job(folder, demo=True, train={"lr": 0.0, "epochs": 1}, federation={"rounds": 1})
    done = simulate(folder, tmp_path / "workspace", "-t", "6")
    assert done.exit_code == 0, done.output[-3000:]
    for evaluation in done.state(job).history.evaluations:
        assert evaluation.pooled.balanced_accuracy < CHANCE + 0.07


@pytest.mark.nightly
def test_a_short_job_on_real_images(tmp_path: Path, shared_data: Path) -> None:
    raw = shared_data / "fed_isic2019"
    subset = tmp_path / "raw"
    wanted = _smallest_centre(raw, subset)
    prepared = tmp_path / "prepared"
    prepare_isic(subset, prepared, workers=2)
    folder = tmp_path / "isic_fedmr"
    shutil.copytree(REPOSITORY / "jobs" / "isic_fedmr", folder)
    without_floors(folder)
    job = change_job(
        folder,
        task={"image_size": 48},
        model={"name": "small_cnn"},
        train={"updates": 3, "batch_size": 16},
        federation={"rounds": 1, "min_sites": 1},
    )
    done = simulate(folder, tmp_path / "workspace", "-c", "vienna-dias", environment={"FEDMR_MED_ISIC": str(prepared)})
    assert done.exit_code == 0, done.output[-3000:]
    assert "DEMO" not in done.output
    record = done.state(job).history.rounds[0].sites["vienna-dias"]
    assert wanted == 351 + 88
    assert 300 <= record.samples <= 360, "rounded, and without classes too small to leave"
    assert record.samples % 10 == 0
    assert record.samples < record.images_total <= wanted + 10
    assert record.shared_classes == ("MEL", "NV")
    assert np.isfinite(list(record.terms.values())).all()


def _smallest_centre(raw: Path, folder: Path) -> int:
    """Copy the images of centre 5 and the split file; return how many images there are."""
    rows = [line.split(",") for line in (raw / "train_test_split").read_text().splitlines()]
    header, rows = rows[0], rows[1:]
    names = [row[header.index("image")] for row in rows if row[header.index("center")] in ("5", "5.0")]
    (folder / "ISIC_2019_Training_Input").mkdir(parents=True)
    for name in names:
        shutil.copy(raw / "ISIC_2019_Training_Input" / f"{name}.jpg", folder / "ISIC_2019_Training_Input")
    shutil.copy(raw / "train_test_split", folder)
    return len(names)
