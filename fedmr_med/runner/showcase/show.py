"""The demo from start to end: runs, figures, picture, page, and a model to try."""

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from fedmr_med.data.demo.pictures import draw
from fedmr_med.data.flamby_isic import CLASS_NAMES
from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.results import RunResults, write_result
from fedmr_med.files import check_writable, write_text
from fedmr_med.process import available_cores
from fedmr_med.report.progress import show_progress
from fedmr_med.runner.showcase.page import page
from fedmr_med.runner.showcase.picture import claim_picture, panel
from fedmr_med.runner.showcase.plan import ALONE, CLASSES, FEDAVG, FEDMR, HOSPITALS, ROUNDS, runs
from fedmr_med.runner.showcase.work import Outcome, Row, carry_out_all, rows
from fedmr_med.seeding import numpy_generator

REPORT, PICTURE, RESULTS, MODEL, IMAGES = "report.html", "claim.svg", "results.json", "best_model.pt", "images"
_RUNS = "runs"
_SAMPLES, _SAMPLE_EDGE = 2, 96


@dataclass(frozen=True)
class Showcase:
    """What the demo left behind: a folder with all files, and the figures of its table."""

    folder: Path
    rows: tuple[Row, ...]

    @property
    def report(self) -> Path:
        """The page that shows everything."""
        return self.folder / REPORT

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the picture."""
        return (self.folder / PICTURE).read_text(encoding="utf-8")


def demo(
    out: Path | str = "fedmr-demo", *, seeds: Sequence[int] = (0,), rounds: int = ROUNDS, quiet: bool = False
) -> Showcase:
    """Train four hospitals alone, with FedAvg, with FedMR, and with FedMR while one of them opts out.

    Progress goes to standard error. It takes about 90 seconds a seed on two cores.

    Args:
        out: folder for the report, the picture, the results, the best model of FedMR and sample pictures.
        seeds: the first one is the picture's.
        rounds: of each run.
        quiet: whether to show nothing meanwhile.

    Raises:
        ConfigError: the folder holds something else.
        OSError: it cannot be written.
    """
    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _RUNS).is_dir():
        raise ConfigError(f"{folder} holds something else; name another folder.", code="file.foreign", key="--out")
    check_writable(folder)
    shutil.rmtree(folder / _RUNS, ignore_errors=True)
    planned = runs(seeds, rounds)
    shown = show_progress(planned, "step", keep=True, line_seconds=10)
    with nullcontext(lambda number, progress: None) if quiet else shown as update:
        outcomes = carry_out_all(planned, folder / _RUNS, min(2, available_cores()), update)
    found = rows(outcomes)
    _write(folder, outcomes, found, len(seeds))
    return Showcase(folder, tuple(found))


def _write(folder: Path, outcomes: Sequence[Outcome], found: Sequence[Row], seeds: int) -> None:
    first = outcomes[0].run.job.seed
    hospital = next(iter(HOSPITALS))
    its_own = [outcome for outcome in outcomes if outcome.run.job.seed == first and hospital in outcome.run.sites]
    by_label = {outcome.run.label: outcome for outcome in its_own}
    drawn = [by_label[label] for label in (ALONE, FEDAVG, FEDMR)]
    write_text(folder / PICTURE, str(claim_picture(drawn, hospital)))
    write_text(folder / REPORT, page(found, [panel(outcome, hospital) for outcome in drawn], hospital, seeds))
    write_result(folder / RESULTS, RunResults(runs=tuple(outcome.result for outcome in outcomes)))
    shutil.copyfile(by_label[FEDMR].model, folder / MODEL)
    _write_samples(folder / IMAGES)


def _write_samples(folder: Path) -> None:
    """Draw some pictures that no hospital holds, named after what they show."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for name in CLASSES:
        label = CLASS_NAMES.index(name)  # as the demo counts
        generators = [numpy_generator("demo sample", label, number) for number in range(_SAMPLES)]
        for number, items in enumerate(draw(label, 0, generators, _SAMPLE_EDGE), start=1):
            Image.fromarray(items).save(folder / f"{name}-{number}.png")
