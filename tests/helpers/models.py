"""A small trained model and a folder of pictures for it."""

from pathlib import Path

from fedmr_med.runner import Federation
from fedmr_med.server.chain import Chain
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.pictures import write_picture
from tests.helpers.small import OPEN, small_job

SITES = {
    name: SiteConfig(
        data=DemoSource(source="demo", center=center), policy=OPEN.model_copy(update={"min_class_count": 2})
    )
    for name, center in (("bcn", 0), ("rosendahl", 3))
}


def small_run(folder: Path) -> Path:
    """Run a small federation and return the folder of its chain: best_model.pt, checkpoint.pt, results.json."""
    federation = Federation(small_job(), SITES, folder)
    state = federation.run()
    Chain(folder, federation.job).write_results(state)
    return folder


def some_pictures(folder: Path) -> Path:
    """Fill a folder with four pictures, one of them in a subfolder, a damaged one, and a file that is none."""
    for number, name in enumerate(("a.png", "b.jpg", "c.tiff", "more/d.png")):
        write_picture(folder / name, size=(40 + number, 32), seed=number)
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "notes.txt").write_text("not an image")
    return folder
