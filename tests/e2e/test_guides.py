"""The commands of the documents, as they are printed, on small data: each page from its first block to its last."""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med.data.flamby_isic import LESIONS_FILE, RAW_FOLDER
from fedmr_med.data.prepare_isic import prepare_isic
from fedmr_med.jobs.new import new_job
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import BEST_MODEL, Chain
from tests.helpers import REPOSITORY
from tests.helpers.archives import write_mini
from tests.helpers.documents import DOCUMENTS, FENCE, OF_A_FEDERATION, commands, text_of
from tests.helpers.pictures import write_csv, write_flamby_folder
from tests.helpers.simulator import change_job, clean_environment, without_floors
from tests.helpers.surveyed import CLASSES, pictures, write_hospitals

NAMES = dict(zip(CLASSES, ("MEL", "NV", "BCC"), strict=True))
POLICY = """\
policy:
  {share_prototypes: true, share_metrics: per_class, share_survey: images, share_subgroups: true, training: null,
   min_class_count: 1, min_cell_count: 1}
"""
SMALL = {
    "model.name": "small_cnn",
    "task.image_size": 32,
    "train.updates": 5,
    "train.batch_size": 16,
    "federation.min_sites": 3,
    "federation.rounds": 1,
}
JOB = {
    "model": {"name": "small_cnn"},
    "task": {"image_size": 32},
    "train": {"updates": 2, "batch_size": 8},
    "federation": {"rounds": 1},
}

SHORTER = {
    r"fedmr-med demo": "--rounds 1",
    r"fedmr-med (--plugin \S+ )?bench": "--rounds 1 --fraction 1 --seeds 0",
    r"fedmr-med bench .*--tune": "--tune 0 --tune-rounds 1",
    r"fedmr-med bench .*--epochs|fedmr-med .*mine": "--epochs 1",
    r"python docs/results/fine_tuning.py": "--rounds 1 --seeds 0",
    r"fedmr-med robustness": "--seeds 0 --attacks 'no attack'",
    r"fedmr-med privacy audit": "--steps 2",
    r"fedmr-med privacy sums --sites 3": "--sites 3,6",
    r"python -m tests.helpers.(pooled_auroc|set_coverage)": "--runs 1",
    r"python -m tests.helpers.fuzz": "--replies 20 --exchanges 20 --files 10",
}
"""What is appended to the commands that begin so: an option given last wins, so the whole printed command is read."""

NAMED = {
    r"\bIMAGES\b": "$PLACE/images",
    r"\bMANIFEST\b": "$PLACE/images/manifest.csv",
    r"\bPREPARED\b": "prepared",
    r"/data/": "$PLACE/data/",
    r"/shared/": "$PLACE/shared/",
    r"\bFEDERATION/fedmr/prod_00\b": "$KITS",
    r"^make (\S+).*": rf"make --dry-run --directory {REPOSITORY} \1",  # it would install packages
    r"^(?:\.venv/bin/)?pytest ": "pytest --collect-only -q ",  # these tests run by themselves
}
"""Placeholders of all pages, and what is run in the place of what would take hours again."""

CHANGES = {
    "docs/first-federation.md": {r"^fedmr-med demo --seed 2 --seed 3 --seed 4": "fedmr-med demo --seed 2 --seed 3"},
    "docs/survey.md": {r"^(fedmr-med jobs new .*)": r"\1 --set task.image_size=32 --set federation.min_sites=3"},
    "docs/scaling.md": {
        r"bench \.\.\.": "bench --dataset fmnist --data data/fmnist --split P5C2 --methods fedavg --model small_cnn",
        r"(--launcher slurm .*)": r"\1 --launcher-option cluster=local --launcher-option gpus=0",
        r"address=auto": "address=local --out $PLACE/shared/ray",
    },
    "docs/monitoring.md": {"2026-01-01": "2000-01-01", "2026-03-31": "2099-12-31"},
}
"""What else of a page's commands is named otherwise here, or made smaller."""

SUMMARIZE = "fedmr-med monitor summarize best_model.pt --since 2000-01-01 --until 2099-12-31"
APRIL = "sed 's/2000-01-01/2100-04-01/; s/2099-12-31/2100-04-30/'"
BEFORE = {
    "docs/monitoring.md": [
        "fedmr-med predict best_model.pt images -o used.csv",
        f"{SUMMARIZE} --site vidir -o vidir.json && {APRIL} vidir.json > vidir-april.json",
        f"{SUMMARIZE} --site bcn -o bcn.json && {APRIL} bcn.json > bcn-april.json",
    ],
    "docs/privacy.md": [
        "sed 's/flamby_isic/demo/; /root:/d' sites/msk/site.yaml > SITE.yaml",
        "cp -r jobs/isic_fedmr JOB",
    ],
    "docs/python.md": ["sed s/fedavgm/mine/ examples/new_method.py > my_method.py"],
}
"""What a page says in words, or takes as given."""

NOT_HERE = {
    r"git clone|pip install|python -m venv|fedmr-med data download|pre-commit": "needs a network",
    r"--flamby FLamby": "needs a checkout of FLamby: tests/lab/flamby runs it where there is one",
    r"flower/bin/python": "needs an environment of its own: make test-flower runs the example",
    r"mysites|jobs/haut": "tests/e2e/test_own_hospitals.py runs them as printed",
}
"""Commands that this test leaves out, and why."""

HOSPITALS = ("judging-a-model", "survey", "subgroups", "comparing-models", "monitoring")
"""Pages for somebody with three hospitals' images; the others start in a copy of this repository."""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hospitals with tables, two models of them, and the folder of a run."""
    folder = tmp_path_factory.mktemp("workplace")
    write_hospitals(folder / "sites", pictures())
    for table in (folder / "sites").glob("*/manifest.csv"):
        with table.open(newline="") as stream:
            head, *rows = csv.reader(stream)
        with table.open("w", newline="") as stream:
            csv.writer(stream).writerows([head, *([name, NAMES[label], *rest] for name, label, *rest in rows)])
        with (table.parent / "site.yaml").open("a") as stream:
            stream.write(POLICY)
    for seed, name in enumerate(("A", "B")):
        job, sites = new_job(
            "run", folder / "sites", tuple(NAMES.values()), method="fedavg", changes=SMALL | {"seed": seed}
        )
        made = Federation(job, sites, folder / name)
        Chain(folder / name, made.job).write_results(made.run())
        shutil.copy(folder / name / BEST_MODEL, folder / f"{name}.pt")
    for name in (BEST_MODEL, "results.json", "checkpoint.pt"):
        shutil.copy(folder / "A" / name, folder)
    shutil.copytree(folder / "sites" / "nord", folder / "images", ignore=shutil.ignore_patterns("site.yaml"))
    shutil.copytree(folder / "sites" / "nord", folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, fmnist: Path) -> Path:
    """What the pages need of this repository, its shipped job made small, and datasets in their own formats."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "examples", "tests"):
        (folder / name).symlink_to(REPOSITORY / name)
    for name in ("jobs", "sites"):
        shutil.copytree(REPOSITORY / name, folder / name)
    change_job(folder / "jobs" / "isic_fedmr", **JOB)
    without_floors(folder / "jobs" / "isic_fedmr")
    shutil.copytree(fmnist, folder / "data" / "fmnist")
    write_mini("cifar10", folder / "data" / "cifar10", per_class=20, test_per_class=4)
    rows = write_flamby_folder(folder / "ISIC", RAW_FOLDER, per_center=24)
    write_csv(folder / "ISIC" / LESIONS_FILE, ("lesion_id", "image_id"), [(f"L{image}", image) for image, *_ in rows])
    (folder / "data" / "isic").symlink_to(folder / "ISIC")
    prepare_isic(folder / "ISIC", folder / "prepared", workers=1)
    return folder


def printed(page: str) -> list[str]:
    """Return the commands of a page that this test runs."""
    return [line for line in commands(page) if not any(re.search(pattern, line) for pattern in NOT_HERE)]


def here(page: str, line: str) -> str:
    """Return a command as it is run: shorter, and with the names of this place."""
    line = " ".join([line, *(more for pattern, more in SHORTER.items() if re.match(pattern, line))])
    for pattern, other in (NAMED | CHANGES.get(page, {})).items():
        line = re.sub(pattern, other, line)
    return line


PAGES = [page for page in DOCUMENTS if page not in OF_A_FEDERATION and printed(page)]
"""Every page, so that a new one is run as well."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_as_printed(
    page: str, request: pytest.FixtureRequest, provisioned: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    given = request.getfixturevalue("workplace" if Path(page).stem in HOSPITALS else "checkout")
    shutil.copytree(given, place, symlinks=True)
    environment = clean_environment(
        PATH=f"{Path(sys.executable).parent}:{clean_environment()['PATH']}",
        PYTHONPATH=str(REPOSITORY),
        PLACE=str(place),
        KITS=str(provisioned),
        FEDMR_MED_CACHE=str(tmp_path / "cache"),
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    exported = ""
    for line in (*BEFORE.get(page, ()), *(here(page, line) for line in printed(page))):
        if line.startswith("export "):
            exported += f"{line} && "
            continue
        done = subprocess.run(
            exported + line, shell=True, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-3000:])
        for written in re.findall(r"(?:-o|--out|--page) (\S+)", line):
            assert (place / written.removeprefix("$PLACE/")).exists(), (line, written)


def test_commands_are_in_shell_blocks_which_alone_are_run() -> None:
    program = r"(?:fedmr-med|nvflare|python3?|pip3?|pytest|make|git|docker|podman|startup/\S*) "
    for page in DOCUMENTS:
        blocks = FENCE.findall(text_of(page))
        assert {language for language, _ in blocks} <= {"sh", "python", "yaml", "csv", ""}, page
        assert not re.search(rf"^ {{4,}}{program}", FENCE.sub("", text_of(page)), re.MULTILINE), page
        for language, block in blocks:
            assert language or not re.search(rf"^ *{program}", block, re.MULTILINE), page


def test_nothing_is_changed_or_left_out_in_vain() -> None:
    every = [line for page in (*PAGES, "docs/flower.md") for line in commands(page)]
    for pattern in (*NOT_HERE, *SHORTER, *NAMED):
        assert any(re.search(pattern, line) for line in every), pattern
    for page, changes in CHANGES.items():
        for pattern in changes:
            assert any(re.search(pattern, line) for line in commands(page)), (page, pattern)
    assert {*CHANGES, *BEFORE, *(f"docs/{page}.md" for page in HOSPITALS)} <= set(PAGES)
