"""Every study at the smoke budget, and the paper's figures they quote."""

import math
from pathlib import Path

import pytest

from fedmr_med import methods
from fedmr_med.data.partition import parse_split
from fedmr_med.errors import DataError
from fedmr_med.evaluation.results import read_result
from fedmr_med.lab.comparison.runs import result_of
from fedmr_med.lab.studies.base import BUDGETS, PaperRow, Setting, paper_figures
from fedmr_med.lab.studies.catalog import STUDIES, StudyResult, make_setting, run_study
from fedmr_med.lab.studies.tables import BEST_BASELINE, VARIANTS
from fedmr_med.methods import PAPER_METHODS
from tests.helpers.errors import raises

# fmt: off
NAMES = [
    "acc", "larger", "communication", "burden", "lite", "optout", "ablation", "eigenvalues", "mu1", "dirichlet",
    "prototype", "morereal", "one-hot", "margin-free", "toy", "motivation", "intra-curve", "heatmap",
]
# fmt: on
# One dataset of each table is enough here; the command runs the first split of all of them.
ONE_DATASET = {"acc": "fmnist", "larger": "isic2019", "burden": "fmnist", "lite": "fmnist", "ablation": "fmnist"}
ONE_DATASET |= {"optout": "cifar10", "dirichlet": "shakespeare", "morereal": "odir"}
ONE_DATASET |= {"one-hot": "fmnist", "margin-free": "fmnist"}
# Those that take longest, and tables that differ in their variants alone.
NIGHTLY = {"communication", "larger", "toy", "prototype", "eigenvalues", "burden", "dirichlet"}
NIGHTLY |= {"ablation", "mu1", "one-hot", "margin-free"}


@pytest.fixture(autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMR_MED_CACHE", str(tmp_path_factory.getbasetemp() / "image-cache"))


def test_the_studies_are_those_of_the_paper() -> None:
    assert list(STUDIES) == NAMES == list(paper_figures())


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.nightly] * (n in NIGHTLY)) for n in NAMES])
def test_a_study_runs_at_the_smoke_budget_with_no_empty_field(name: str, tmp_path: Path) -> None:
    result = run_study(make_setting(name, "smoke", tmp_path, workers=0, dataset=ONE_DATASET.get(name)))
    assert read_result(tmp_path / "study.json", StudyResult) == result
    page = (tmp_path / "report.html").read_text()
    for table in result.tables:
        assert table.rows
        for row in table.rows:
            assert row.keys() == table.rows[0].keys()
            for value in row.values():
                assert value not in (None, "", "nan")
                assert not (isinstance(value, float) and not math.isfinite(value))
        assert any("paper" in column for column in table.rows[0])
        assert table.title in page.replace("&#39;", "'")
    assert all(result.differs)
    assert result.stand_ins == any("stands in" in line for line in result.differs)


@pytest.mark.parametrize("name", [name for name in NAMES if paper_figures()[name].rows])
def test_the_papers_rows_fit_the_variants_that_are_run(name: str, tmp_path: Path) -> None:
    setting = Setting(name, BUDGETS["full"], tmp_path, data=tmp_path)
    for row in paper_figures()[name].rows:
        assert set(row.values) <= {*VARIANTS[name], BEST_BASELINE}
        for split in row.splits or [row.split]:
            assert split is None or parse_split(split)
        split, *_ = row.splits or [row.split]
        for label, variant in VARIANTS[name].items():
            options = variant.options_for(row.dataset, split)
            job = setting.run(label, row.dataset, variant.method, split=split, clients=row.clients, options=options).job
            assert methods.build(job.method).name == variant.method


def test_the_papers_headline_is_copied_right() -> None:
    acc = {(row.dataset, row.split): row.values for row in paper_figures()["acc"].rows}
    assert (acc["cifar10", "P5C2"]["fedavg"], acc["cifar10", "P5C2"]["fedmr"]) == (67.68, 74.19)
    assert (acc["cifar100", "P10C10"]["fedavg"], acc["cifar100", "P10C10"]["fedmr"]) == (54.31, 57.27)
    assert len(acc) == 20
    assert all(set(values) == set(PAPER_METHODS) for values in acc.values())
    # The averages the paper prints, of seven methods and four datasets.
    printed = {
        "fmnist": {"fedavg": 79.35, "fedprox": 79.89, "fedproc": 79.74, "fednova": 75.84, "feddyn": 80.26},
        "svhn": {"fedavg": 86.48, "fedprox": 86.59, "fedproc": 86.32, "moon": 86.71, "feddyn": 85.17, "fedmr": 87.98},
        "cifar10": {"fedavg": 78.58, "fedprox": 79.53, "moon": 78.69, "feddyn": 79.20, "feddc": 79.15, "fedmr": 82.48},
        "cifar100": {"fedavg": 66.41, "fedprox": 66.76, "fedproc": 66.90, "fednova": 66.74, "fedmr": 67.66},
    }
    for dataset, averages in printed.items():
        rows = [values for (name, _), values in acc.items() if name == dataset]
        for method, average in averages.items():
            assert sum(values[method] for values in rows) / 5 == pytest.approx(average, abs=0.011), (dataset, method)


def test_the_full_budget_is_the_papers_set_up(tmp_path: Path) -> None:
    setting = Setting("acc", BUDGETS["full"], tmp_path, data=tmp_path)
    assert len(setting.rows()) == 20
    job = setting.run("fedmr", "cifar10", "fedmr", split="P5C2").job
    assert (job.model.name, job.federation.rounds, job.train.epochs, job.train.batch_size) == ("resnet18", 100, 10, 128)
    assert job.method.options == {"variant": "paper", "mu1": 0.1, "mu2": 0.001}


@pytest.mark.parametrize(
    ("study", "rounds"), [("acc", 200), ("lite", 200), ("larger", 400), ("communication", 400), ("optout", 400)]
)
def test_some_tables_have_more_rounds_of_cifar100(study: str, rounds: int, tmp_path: Path) -> None:
    setting = Setting(study, BUDGETS["full"], tmp_path, data=tmp_path)
    (row,) = [row for row in setting.rows() if (row.dataset, row.split) == ("cifar100", "P10C10")]
    run = setting.run("fedavg", row.dataset, "fedavg", split=row.split, rounds=row.rounds)
    assert run.job.federation.rounds == rounds
    small = Setting(study, BUDGETS["cpu"], tmp_path, data=tmp_path)
    assert small.run("fedavg", row.dataset, "fedavg", split=row.split, rounds=row.rounds).job.federation.rounds == 20


def test_studies_prepare_images_as_the_authors_code_does(tmp_path: Path) -> None:
    setting = Setting("acc", BUDGETS["full"], tmp_path, data=tmp_path)
    authors = {"fmnist": "unit", "svhn": "plain", "cifar10": "reflect_crop_flip", "cifar100": "crop_flip_rotate"}
    assert {name: setting.run("x", name, "fedavg").job.task.transform for name in authors} == authors
    assert "fmnist by unit" in " ".join(setting.differences(["fmnist"]))


def test_variants_change_what_they_say(tmp_path: Path) -> None:
    setting = Setting("prototype", BUDGETS["smoke"], tmp_path)
    assert VARIANTS["prototype"]["moon + prototypes"].options_for("fmnist", "P5C2") == {
        "reshaping": {"terms": "inter", "mu2": 0.0001}
    }
    run = setting.run("x", "fmnist", "moon", split="P5C2", options={"reshaping": {"terms": "inter", "mu2": 0.0001}})
    assert run.job.method.options == {"mu": 0.001, "reshaping": {"terms": "inter", "mu2": 0.0001}}
    assert {VARIANTS["optout"][f"{p} %"].share for p in (50, 80, 100)} == {0.5, 0.8, 1.0}
    assert VARIANTS["lite"]["n=10"].options == {"lite": 10}
    assert VARIANTS["one-hot"]["one-hot"].options == {"prototypes": "one_hot"}
    assert VARIANTS["margin-free"]["margin-free, mu2=0.1"].options == {"margin": False, "mu2": 0.1}


@pytest.mark.slow
def test_real_data_takes_the_place_of_generated_data(tmp_path: Path, shared_data: Path) -> None:
    setting = make_setting("intra-curve", "smoke", tmp_path, workers=0, data=shared_data)
    assert not run_study(setting).stand_ins
    run = setting.run("fedmr", "cifar10", "fedmr", split="P5C2")
    assert run.selection.data == shared_data / "cifar10"
    assert result_of(run, tmp_path / "runs") is not None


def test_studies_that_cannot_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("config.unknown-name", "study"):
        make_setting("accuracy", "smoke", tmp_path)
    with raises("config.unknown-name", "--budget"):
        make_setting("acc", "tiny", tmp_path)
    with raises("config.unknown-name", "--split"):
        make_setting("acc", "smoke", tmp_path, dataset="isic2019")
    monkeypatch.delenv("FEDMR_MED_DATA", raising=False)
    with pytest.raises(DataError, match="fedmr-med data download cifar10"):
        run_study(make_setting("mu1", "cpu", tmp_path, workers=0))


def test_a_study_whose_run_fails_says_why(tmp_path: Path) -> None:
    refused = make_setting("intra-curve", "smoke", tmp_path, workers=0, settings={"federation.max_norm": 0.001})
    with raises("run.failed") as caught:
        run_study(refused)
    assert "max_norm" in str(caught.value)


def test_the_smoke_budget_runs_the_first_split_of_each_dataset(tmp_path: Path) -> None:
    rows: list[PaperRow] = make_setting("larger", "smoke", tmp_path).rows()
    places = [(row.dataset, row.split) for row in rows]
    assert places == [("cifar10", "P10C3"), ("cifar100", "P10C10"), ("isic2019", None)]
    assert {row.split for row in make_setting("larger", "smoke", tmp_path, split="P100C3").rows()} == {"P100C3"}
