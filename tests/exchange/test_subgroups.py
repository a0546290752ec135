"""Scores by columns of the hospitals' tables, over a federation: those of scikit-learn on the pooled images."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import recall_score

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.metrics import recalls, scored
from fedmr_med.evaluation.results import RunResult, RunSetup
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.export.card import BY_GROUP, make_card
from fedmr_med.export.source import Source
from fedmr_med.jobs.new import new_job
from fedmr_med.models import load_arrays
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.report.document import write_report
from fedmr_med.report.pages.groups import subgroups
from fedmr_med.report.sources import ChainRun
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import BEST_MODEL, Chain
from fedmr_med.server.state import GlobalState
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.training import outputs
from fedmr_med.sites import SiteConfig
from tests.helpers.command_line import run as command
from tests.helpers.surveyed import CLASSES, SUBGROUPS, pictures, write_hospitals

ALL = {"share_prototypes": True, "share_metrics": "per_class", "share_subgroups": True, "training": None}
OPEN = SitePolicy(**ALL, min_class_count=1, min_cell_count=1)
LEARNS = {"train.updates": 60, "train.optimizer": "adam", "train.lr": 0.003, "train.augment": False}
PICTURES = pictures()
SITES = ("mitte", "nord", "sur")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    write_hospitals(folder, PICTURES)
    return folder


def job_of(folder: Path, policy: SitePolicy = OPEN, **changes: object) -> tuple[JobConfig, dict[str, SiteConfig]]:
    wanted = {
        "task.subgroups": SUBGROUPS,
        "task.image_size": 32,
        "federation.min_sites": 3,
        "federation.rounds": 1,
        "train.updates": 10,
        "model.name": "small_cnn",
        "train.batch_size": 16,
        "head.exchange": "none",
    }
    job, sites = new_job(
        "apart", folder, CLASSES, method="fedavg", changes={"model.name": "small_cnn", **wanted, **changes}
    )
    return job, {name: site.model_copy(update={"policy": policy}) for name, site in sites.items()}


def run(job: JobConfig, sites: dict[str, SiteConfig], folder: Path) -> tuple[GlobalState, Evaluation]:
    federation = Federation(job, sites, folder)
    state = federation.run()
    Chain(folder, federation.job).write_results(state)
    return state, state.history.evaluations[-1]


def answers(
    job: JobConfig, sites: dict[str, SiteConfig], state: GlobalState, folder: Path
) -> tuple[np.ndarray, np.ndarray, list[dict[str, str]]]:
    """Return truth, answers and the rows of the table of all test images, without the code that is tested."""
    truth, said, rows = [], [], []
    for name in SITES:
        hospital = Hospital(name, job, sites[name], folder / name)
        load_arrays(hospital.network, state.model)
        logits, labels = outputs(hospital.network, hospital.batches.test)
        own = [one for one in PICTURES if one.site == name and one.fold == "test"]
        assert [one.label for one in own] == labels.tolist()
        truth.append(labels)
        said.append(logits.argmax(1))
        rows += [{"sex": one.sex.lower(), "age": one.age, "device": one.device.lower()} for one in own]
    return np.concatenate(truth), np.concatenate(said), rows


def is_in(column: str, level: str, row: dict[str, str]) -> bool:
    if column != "age":
        return row[column] == level.lower()
    low, high = {"0-39": (0, 40), "40-59": (40, 60), "60+": (60, 200)}[level]
    return bool(row["age"]) and low <= int(row["age"]) < high


@pytest.mark.slow
def test_levels_have_the_scores_of_their_images_and_secure_sums_the_same(hospitals: Path, tmp_path: Path) -> None:
    job, sites = job_of(hospitals)
    state, plain = run(job, sites, tmp_path / "plain")
    truth, said, rows = answers(job, sites, state, tmp_path / "again")
    assert list(plain.subgroups) == list(SUBGROUPS)
    for column, levels in plain.subgroups.items():
        for level, found in levels.items():
            mask = np.array([is_in(column, level, row) for row in rows])
            expected = recall_score(truth[mask], said[mask], average=None, labels=range(3), zero_division=np.nan)
            assert found.figures is not None and found.figures.samples == mask.sum() and found.sites == SITES
            told = recalls(np.array(found.figures.confusion))
            for own, reference in zip(told, expected, strict=True):
                assert own is None if np.isnan(reference) else own == pytest.approx(reference)
            every = recall_score(truth, said, average=None, labels=range(3))
            apart = float(np.nanmean(expected - every))
            assert found.apart == pytest.approx(apart, abs=1e-4)
    secure, safe = job_of(hospitals, **{"federation.secure": "statistics"})
    total = run(secure, safe, tmp_path / "secure")[1]
    assert total.sites == {} and total.between == ()
    for column, levels in plain.subgroups.items():
        for level, found in levels.items():
            other = total.subgroups[column][level]
            assert other.sites == () and found.figures is not None and other.figures is not None
            assert (other.figures.confusion, other.apart) == (found.figures.confusion, found.apart)


def test_by_default_no_score_by_subgroup_leaves(hospitals: Path, tmp_path: Path) -> None:
    policy = OPEN.model_copy(update={"share_subgroups": False})
    evaluation = run(*job_of(hospitals, policy), tmp_path)[1]
    assert evaluation.pooled is not None
    assert all(found.figures is None for levels in evaluation.subgroups.values() for found in levels.values())


@pytest.mark.slow
def test_the_worst_are_named_on_report_and_card(hospitals: Path, tmp_path: Path) -> None:
    state, evaluation = run(*job_of(hospitals, **LEARNS), tmp_path)
    assert evaluation.worst_levels and evaluation.between
    assert state.history.best is not None and state.history.best.round == 1
    column, (level, value) = next(iter(evaluation.worst_levels.items()))
    assert value == min(one.apart for one in evaluation.subgroups[column].values() if one.apart is not None)
    write_report([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    card = make_card(Source.open(tmp_path / BEST_MODEL))
    said = f"By {column} the model serves {level} worst: its mean recall is {-value:.3f} below"
    assert said in page and any(line.startswith(said) for line in card.fairness)
    assert "What a new hospital may expect" in page
    assert BY_GROUP not in card.open_points


def test_the_page_says_of_which_model_the_scores_are() -> None:
    """In training, models are not scored by subgroup; the last one is."""
    labels = np.repeat([0, 1], 30)
    good, bad = scored(np.eye(2)[labels] * 3, labels), scored(np.eye(2)[np.arange(60) % 2], labels)
    last = Evaluation.of(2, {"a": bad}).by_level((("sex", "f"),), [(bad, ("a",))], bad)
    history = History().with_evaluation(Evaluation.of(1, {"a": good})).with_evaluation(last)
    setup = RunSetup(dataset="x", split=None, method="fedavg", seed=0, class_names=("p", "q"))
    page = subgroups(ChainRun(Path(), RunResult.of(setup, history, whole=True)))
    assert page is not None and "Of the model after round 2, the last" in page.body
    assert history.best is not None and history.best.round == 1


@pytest.mark.slow
def test_a_hospital_scores_its_own_table_by_subgroup(
    hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*job_of(hospitals, **{"task.subgroups": {}}), tmp_path)
    place, out = hospitals / "sur" / "manifest.csv", tmp_path / "out"
    options = ["--subgroup", "sex=female,male", "--subgroup", "age=0-39,40+"]
    assert command(monkeypatch, "evaluate", str(tmp_path / BEST_MODEL), str(place), "-o", str(out), *options) == 0
    page = (out / "report.html").read_text()
    assert "Scores by sex" in page and "40+" in page
    images = [one for one in PICTURES if one.site == "sur" and one.fold == "test" and one.sex == "Female"]
    assert f'<td data-column="test images" class="">{len(images)}</td>' in page
    assert command(monkeypatch, "evaluate", str(tmp_path / BEST_MODEL), str(place), "--subgroup", "sex") == 2
