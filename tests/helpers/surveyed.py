"""Hospitals whose pictures are known to the pixel, with a table that says more of them than their class."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedmr_med.config import JobConfig
from fedmr_med.jobs.new import SURVEY_CHANGES, new_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.sites import SiteConfig

CLASSES = ("a", "b", "c")
SUBGROUPS = {"sex": ["female", "male"], "age": ["0-39", "40-59", "60+"], "device": ["Alpha", "Beta"]}
OPEN = SitePolicy(share_survey="images", share_subgroups=True, share_prototypes=True, training=None)


@dataclass(frozen=True)
class Picture:
    """One image of one color, so that no scaling changes what is measured of it."""

    site: str
    label: int
    fold: str
    size: tuple[int, int]
    color: tuple[int, int, int]
    sex: str
    age: str
    device: str


def pictures(seed: int = 0) -> list[Picture]:
    """Draw three hospitals' pictures; class ``c`` is at one of them, ``sur`` is dark, and ``nord`` has doubles."""
    counts = {"nord": (60, 40, 0), "mitte": (45, 15, 30), "sur": (120, 25, 4)}
    generator, found = np.random.default_rng(seed), list[Picture]()
    for site, numbers in counts.items():
        for label, count in enumerate(numbers):
            for number in range(count):
                low, high = (10, 90) if site == "sur" else (100, 250)
                third = (high - low) // 3  # redder from class to class, so that a network can learn them
                red = int(generator.integers(low + third * label, low + third * (label + 1)))
                color = red, *generator.integers(low, high, 2).tolist()
                size = (int(generator.choice([60, 140, 300])), int(generator.choice([150, 310])))
                age = "" if number % 7 == 0 else str(int(generator.integers(20, 90)))
                sex, device = (
                    generator.choice(["Female", "male", "unknown"]),
                    generator.choice(["alpha", "Beta", "Rare"]),
                )
                fold = "test" if number % 3 == 0 else "train"
                found.append(Picture(site, label, fold, size, color, str(sex), age, str(device)))
    twins = [picture for picture in found if picture.site == "nord" and picture.label == 0][:12]
    return [*found, *twins]


def write_hospitals(folder: Path, found: list[Picture]) -> None:
    """Write a folder per hospital, with its table and a site file that shares nothing."""
    columns = ("image", "label", "fold", "Sex", "AGE", "device")
    rows: dict[str, list[tuple[str, ...]]] = {}
    for number, one in enumerate(found):
        name = f"{number}.png"
        (folder / one.site).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", one.size, one.color).save(folder / one.site / name)
        row = name, CLASSES[one.label], one.fold, one.sex, one.age, one.device
        rows.setdefault(one.site, []).append(row)
    for site, listed in rows.items():
        with (folder / site / "manifest.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([columns, *listed])
        (folder / site / "site.yaml").write_text("data: {source: manifest, root: .}\n")


def survey(
    folder: Path, policies: Mapping[str, SitePolicy], **changes: object
) -> tuple[JobConfig, dict[str, SiteConfig]]:
    """Return a survey of the hospitals below a folder, and their settings with the given policies."""
    wanted = {
        **SURVEY_CHANGES,
        "task.subgroups": SUBGROUPS,
        "task.image_size": 32,
        "federation.min_sites": 3,
        **changes,
    }
    job, sites = new_job("survey", folder, CLASSES, changes=wanted)
    return job, {name: site.model_copy(update={"policy": policies.get(name, OPEN)}) for name, site in sites.items()}
