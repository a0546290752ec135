"""A small trained model and a folder of pictures, once for all tests of this folder."""

from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a chain: best_model.pt, checkpoint.pt, results.json."""
    folder = tmp_path_factory.mktemp("run")
    federation = Federation(small_job(), SITES, folder)
    state = federation.run()
    Chain(folder, federation.job).write_results(state)
    return folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four pictures, one of them in a subfolder, and a file that is none."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "more").mkdir()
    for number, name in enumerate(("a.png", "b.jpg", "c.tiff", "more/d.png")):
        write_picture(folder / name, size=(40 + number, 32))
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "notes.txt").write_text("not an image")
    return folder
