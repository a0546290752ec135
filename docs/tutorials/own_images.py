"""FedMR on your own images: one folder per hospital, with pictures and a ``manifest.csv`` (image, label, fold).

Without a folder it draws pictures for two hospitals, each of which has seen two of three kinds.

    python docs/tutorials/own_images.py [FOLDER]     # FOLDER/<hospital>/manifest.csv and the pictures it names
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from fedmr_med import Federation, SiteConfig, SitePolicy
from fedmr_med.jobs.catalog import own_job
from fedmr_med.sites import ManifestSource

CLASSES = ("blank", "stripes", "square")


def train(folder: Path, classes: tuple[str, ...]) -> None:
    """Train one network on the images of all hospitals, which stay where they are."""
    sites = {}
    for path in sorted(folder.glob("*/manifest.csv")):
        source = ManifestSource(source="manifest", root=path.parent)
        # Cells of any size may leave, as the pictures are drawn: so few images make no score otherwise.
        policy = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1, training=None)
        sites[path.parent.name] = SiteConfig(data=source, policy=policy, cache=folder / "cache")
    task = {"class_names": classes, "image_size": 24}
    changes = {"train.epochs": 3, "train.batch_size": 8, "federation.min_sites": len(sites)}
    job = own_job("own_images", task, "fedmr", "small_cnn", rounds=3, changes=changes)
    state = Federation(job, sites, folder / "run").run()
    for evaluation in state.history.evaluations:
        if evaluation.pooled is not None:
            print(f"after {evaluation.round} rounds: {evaluation.pooled.text()} ({evaluation.coverage})")
    for name, site in state.history.rounds[-1].sites.items():
        print(f"{name} shared the prototypes of {', '.join(site.shared_classes)}")
    print("the model:", (folder / "run" / "best_model.pt").relative_to(folder))


def draw(folder: Path) -> None:
    """Draw pictures for two hospitals."""
    generator = np.random.default_rng(0)
    for hospital, kinds in {"north": CLASSES[:2], "south": CLASSES[1:]}.items():
        (folder / hospital).mkdir(parents=True)
        lines = ["image,label,fold"]
        for number in range(60):
            kind = kinds[number % 2]
            picture = generator.integers(0, 60, (24, 24, 3))
            if kind == "stripes":
                picture[:, ::4] = 220
            elif kind == "square":
                picture[6:18, 6:18] = 220
            Image.fromarray(picture.astype(np.uint8)).save(folder / hospital / f"{number}.png")
            lines.append(f"{number}.png,{kind},{'test' if number >= 36 else 'train'}")
        (folder / hospital / "manifest.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]), CLASSES)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            draw(Path(temporary))
            train(Path(temporary), CLASSES)
