"""The commands of the guides, as they are printed, on small data: each page from its first block to its last."""

import csv
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedmr_med.jobs.new import new_job
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import BEST_MODEL, Chain
from tests.helpers import REPOSITORY
from tests.helpers.simulator import clean_environment
from tests.helpers.surveyed import CLASSES, pictures, write_hospitals

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

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
PAGES = {
    "first-federation.md": {r"fedmr-med demo$": "fedmr-med demo --rounds 1", r"^fedmr-med demo --seed.*": ""},
    "judging-a-model.md": {r"\bIMAGES\b": "$IMAGES"},
    "survey.md": {r"^(fedmr-med jobs new .*)": r"\1 --set task.image_size=32 --set federation.min_sites=3"},
    "subgroups.md": {},
    "comparing-models.md": {},
    "comparing-methods.md": {
        r"^fedmr-med data download.*": "",  # needs a network
        r"^pip install.*": "",
        r"--rounds 30 --epochs 3": "--rounds 1 --epochs 1",
        r"--data PREPARED --absent bcn (.*) --without-leaked": r"--data demo --set task.image_size=32 \1",
    },
}
"""What of a page's commands is named otherwise here, or made smaller."""

NOT_HERE = ("git clone", "make ", ". .venv")


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


def commands(page: str) -> list[str]:
    """The lines of a page's blocks as a shell takes them, without comments, with what this test changes."""
    blocks = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [re.sub(r"\s{2,}#.*", "", line).strip() for line in "".join(blocks).replace("\\\n", " ").splitlines()]
    for pattern, other in PAGES[page].items():
        lines = [re.sub(pattern, other, line) for line in lines]
    return [line for line in lines if line and not line.startswith(NOT_HERE)]


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_guide_run_as_printed(page: str, workplace: Path, fmnist: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(workplace, place)
    shutil.copytree(fmnist, place / "data" / "fmnist")
    path = f"{Path(sys.executable).parent}:{clean_environment()['PATH']}"
    environment = clean_environment(PATH=path, IMAGES=str(place / "images"), FEDMR_MED_CACHE=str(tmp_path / "cache"))
    ran = commands(page)
    assert ran
    for line in ran:
        done = subprocess.run(line, shell=True, cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-3000:])
        for written in re.findall(r"(?:-o|--out|--page) (\S+)", line):
            assert (place / written).exists(), (line, written)


def test_pages_have_the_commands_that_they_are_here_for() -> None:
    said = {page: [tuple(shlex.split(line)[:2]) for line in commands(page)] for page in PAGES}
    assert said["judging-a-model.md"][:3] == [("fedmr-med", word) for word in ("report", "predict", "export")]
    assert ("nvflare", "simulator") in said["survey.md"]
    assert said["comparing-models.md"] == [("fedmr-med", "evaluate")] * 2
