"""A model is scored without a federation, and by a job that trains nothing."""

import json
import re
from pathlib import Path

import pytest

from fedmr_med.config import load_job
from fedmr_med.errors import DataError
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.inference.evaluate import OwnTable, evaluation_job
from fedmr_med.jobs.folder import INITIAL_MODEL, SERVER_APP
from fedmr_med.models.model_file import load_model
from fedmr_med.runner import Federation
from fedmr_med.server.state import initial_state
from fedmr_med.sites import ManifestSource, load_site
from tests.helpers.command_line import call
from tests.helpers.errors import raises
from tests.helpers.models import SITES
from tests.helpers.pictures import read_csv, write_csv, write_picture


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a manifest of three classes, a broken file among the images."""
    folder = tmp_path_factory.mktemp("hospitals") / "hospital"
    rows: list[tuple[object, ...]] = []
    for number in range(36):
        name = f"images/{number}.png"
        write_picture(folder / name, size=(40, 32), seed=number)
        rows.append((name, ("MEL", "NV", "BCC")[number % 3], "test" if number < 18 else "train"))
    (folder / "images" / "0.png").write_bytes(b"broken")
    write_csv(folder / "manifest.csv", ("image", "label", "fold"), rows)
    return folder


@pytest.mark.slow
def test_a_hospital_outside_the_federation_checks_a_model(run: Path, hospital: Path, tmp_path: Path) -> None:
    done = call("evaluate", run / "best_model.pt", hospital, "-o", tmp_path, "--site", "clinic")
    assert "17 images" in done.stdout
    assert done.stderr.count("cannot be read") == 1
    (result,) = read_result(tmp_path / "results.json", RunResults).runs
    figures = result.history.evaluations[0].figures["clinic"]
    assert figures.samples == 17
    assert [c.status for c in figures.classes[:4]] == ["scored", "scored", "scored", "none"]
    assert "auroc" in figures.classes[0].metrics
    answers = read_csv(tmp_path / "predictions.csv")
    assert len(answers) == 18
    truth = {row["image"]: row["label"] for row in read_csv(hospital / "manifest.csv")}
    wrong = {row["image"] for row in answers if not row["error"] and row["answer"] != truth[row["image"]]}
    missed = (tmp_path / "missed.html").read_text()
    assert wrong and set(re.findall(r"<br>([^<]+)</figcaption>", missed)) == wrong
    report = (tmp_path / "report.html").read_text()
    assert "data:image" not in report, "the report may leave the hospital: it has no image"
    assert "were sent by" not in report, "nothing was sent to anybody"


def test_a_hospital_measures_the_coverage_of_the_sets(run: Path, hospital: Path, tmp_path: Path) -> None:
    model, asked = run / "best_model.pt", ("--coverage", "0.8")
    done = call("evaluate", model, hospital, "-o", tmp_path, *asked, "--json")
    told = json.loads(done.stdout)["sets"]
    call("predict", model, hospital / "images", "-o", tmp_path / "p.csv", *asked)
    sets = {f"images/{row['image']}": row["set"].split() for row in read_csv(tmp_path / "p.csv") if not row["error"]}
    tested = {row["image"]: row["label"] for row in read_csv(hospital / "manifest.csv") if row["image"] in sets}
    tested = {image: label for image, label in tested.items() if int(Path(image).stem) < 18}
    assert told["images"] == {name: list(tested.values()).count(name) for name in ("MEL", "NV", "BCC")}
    assert told["held"] == {
        name: sum(name in sets[image] for image, label in tested.items() if label == name) for name in told["images"]
    }
    assert told["one_class"] == sum(len(sets[image]) == 1 for image in tested)
    assert (
        f"{told['held']['NV']} of {told['images']['NV']}"
        in call("evaluate", model, hospital, "-o", tmp_path, *asked).stdout
    )
    with raises("config.conflict", "--coverage"):
        call("evaluate", model, "--job", tmp_path / "job", *asked)


def test_the_federations_model_beside_one_of_this_hospital_alone(run: Path, hospital: Path, tmp_path: Path) -> None:
    done = call("evaluate", run / "best_model.pt", hospital, "-o", tmp_path, "--local-baseline", "--json")
    first, second = json.loads(done.stdout)["runs"]
    assert (first["label"], second["label"]) == ("this model", "this hospital alone")
    assert len(second["rounds"]) == load_model(run / "best_model.pt").job.federation.rounds
    same = [r["history"]["evaluations"][-1]["pooled_figures"]["samples"] for r in (first, second)]
    assert same == [17, 17]


def test_a_job_scores_the_model_at_all_sites_and_trains_nothing(run: Path, tmp_path: Path) -> None:
    call("evaluate", run / "best_model.pt", "--job", tmp_path / "job", "--sites", "sites")
    config = tmp_path / "job" / "app" / "config"
    job = load_job(config / "fedmr.yaml")
    assert (job.federation.rounds, job.federation.min_sites, job.head.exchange) == (0, 6, "none")
    saved = load_model(run / "best_model.pt")
    assert not (config / INITIAL_MODEL).exists(), "weights go to the server only"
    assert json.loads((tmp_path / "job" / "meta.json").read_text())["deploy_map"][SERVER_APP] == ["server"]
    assert load_job(tmp_path / "job" / SERVER_APP / "config" / "fedmr.yaml") == job
    carried = initial_state(job, tmp_path / "job" / SERVER_APP / "config" / INITIAL_MODEL)
    assert all((carried.model[name] == array).all() for name, array in saved.model.items())


def test_a_job_carries_the_sites_own_paths_in_full(run: Path, hospital: Path, tmp_path: Path) -> None:
    """The simulator copies them elsewhere, where a path relative to the site's own folder would lead nowhere."""
    (hospital / "site.yaml").write_text("data: {source: manifest, root: .}\n")
    call("evaluate", run / "best_model.pt", "--job", tmp_path / "job", "--sites", hospital.parent)
    carried = load_site(tmp_path / "job" / "app" / "config" / "sites" / hospital.name / "site.yaml")
    assert isinstance(carried.data, ManifestSource)
    assert carried.data.root == hospital.resolve()


def test_the_job_gives_the_scores_of_the_run_that_made_the_model(run: Path, tmp_path: Path) -> None:
    saved = load_model(run / "best_model.pt")
    job = evaluation_job(saved, SITES)
    state = Federation(job, SITES, tmp_path, initial_model=run / "best_model.pt").run()
    (result,) = read_result(run / "results.json", RunResults).runs
    assert state.history.rounds == ()
    assert state.history.evaluations[0].pooled_figures == result.history.best_evaluation.pooled_figures


def test_what_is_missing_is_said(run: Path, hospital: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data manifest"):
        OwnTable.open(tmp_path, ("MEL",))
    with raises("config.conflict", "--job"):
        call("evaluate", run / "best_model.pt")
