"""A class that nobody had joins a one-shot chain: to the bit the head of a chain that had it from the start."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmr_med.config import JobConfig
from fedmr_med.jobs.extend import extend_job, extended
from fedmr_med.jobs.folder import find_job, write_job
from fedmr_med.runner import Federation
from fedmr_med.server.chain import Chain
from fedmr_med.server.owner import Owner
from fedmr_med.sites import ManifestSource, SiteConfig
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, OPEN, small_job
from tests.helpers.transports import outcome

CLASSES, NEW = ("A", "B", "C"), "D"
COUNTS = {"nord": (40, 36, 0, 0), "ost": (40, 0, 36, 0), "sued": (0, 36, 36, 0), "west": (36, 36, 0, 36)}
JOB = small_job(
    "fedavg",
    task={"dataset": "own", "class_names": CLASSES, "transform": "plain", "preparation": None},
    loss={"name": "cross_entropy", "class_weights": "none"},
    federation={"rounds": 0, "min_sites": 2},
    head={"exchange": "last", "keep": True, "held_out": 0.3},
)
FROM_THE_START = JOB.override({"task": {"class_names": [*CLASSES, NEW]}})


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hospitals with coloured noise, a colour a class; ``before.csv`` has no image of the new class."""
    out = tmp_path_factory.mktemp("images")
    for seed, (site, counts) in enumerate(COUNTS.items()):
        generator, rows = np.random.default_rng(seed), []
        for label, count in enumerate(counts):
            colour = np.array([(200, 60, 60), (60, 200, 60), (60, 60, 200), (200, 200, 60)][label])
            for number in range(count):
                path = out / site / f"{label}-{number}.png"
                path.parent.mkdir(exist_ok=True)
                noisy = colour + generator.normal(0, 60, (24, 24, 3))
                Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path)
                rows.append((path.name, [*CLASSES, NEW][label], "test" if number % 3 == 0 else "train"))
        for name, kept in (("before.csv", [row for row in rows if row[1] != NEW]), ("after.csv", rows)):
            with (out / site / name).open("w", newline="") as stream:
                csv.writer(stream).writerows([("image", "label", "fold"), *kept])
    return out


def sites(images: Path, manifest: str, *names: str, closed: str = "") -> dict[str, SiteConfig]:
    return {
        name: SiteConfig(
            data=ManifestSource(source="manifest", root=images / name, manifest=Path(manifest)),
            policy=CLOSED if name == closed else OPEN,
        )
        for name in names or COUNTS
    }


def joined(site: str = "west", job: JobConfig = JOB, **changes: Any) -> JobConfig:
    return extended(job, chain="before", new_class=NEW, site=site).override(changes)


def run(job: JobConfig, configs: dict[str, SiteConfig], folder: Path) -> Any:
    return Federation(job, configs, folder).run()


@pytest.mark.slow
@pytest.mark.parametrize("first", [("nord", "ost", "sued"), tuple(COUNTS)], ids=["a new site", "a site that was there"])
def test_the_result_is_to_the_bit_that_of_a_chain_which_had_the_class_from_the_start(
    first: tuple[str, ...], images: Path, tmp_path: Path
) -> None:
    before = run(JOB, sites(images, "before.csv", *first), tmp_path / "before")
    after = run(joined(), sites(images, "after.csv"), tmp_path / "after")
    expected = run(FROM_THE_START, sites(images, "after.csv"), tmp_path / "start")
    assert outcome(after) == outcome(expected)
    assert after.history.head.classes == (*CLASSES, NEW)
    recall = after.history.head.evaluation.pooled.recall
    assert recall[-1] > 0.5, "it tells the class apart"
    assert len(before.history.head.classes) == len(CLASSES)
    assert after.history.head.bytes_up < expected.history.head.bytes_up / 2, "one site was asked"


@pytest.mark.slow
def test_who_left_the_first_chain_is_in_the_second_neither_asked_nor_known(images: Path, tmp_path: Path) -> None:
    run(JOB, sites(images, "before.csv"), tmp_path / "before")
    run(JOB.override({"federation": {"without": ["ost"]}}), sites(images, "before.csv"), tmp_path / "before")
    after = run(joined(), sites(images, "after.csv"), tmp_path / "after")
    expected = run(FROM_THE_START, sites(images, "after.csv", "nord", "sued", "west"), tmp_path / "start")
    assert outcome(after) == outcome(expected)
    assert after.history.left == {"ost"}
    with raises("extend.nothing-kept"):
        run(joined("ost"), sites(images, "after.csv"), tmp_path / "again")


def test_a_site_that_shares_nothing_of_the_class_cannot_bring_it(images: Path, tmp_path: Path) -> None:
    run(JOB, sites(images, "before.csv"), tmp_path / "before")
    with raises("extend.none"):
        run(joined(), sites(images, "after.csv", closed="west"), tmp_path / "closed")
    with raises("extend.none"):
        run(joined("nord"), sites(images, "after.csv"), tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"head": {"keep": False}}, "extend.other-settings"),
        ({"task": {"image_size": 16}}, "extend.other-settings"),
        ({"seed": 5}, "extend.other-settings"),
        ({"task": {"class_names": ["A", "C", "B", NEW]}}, "extend.other-settings"),
    ],
)
def test_a_chain_of_other_settings_is_not_extended(
    changes: dict[str, Any], code: str, images: Path, tmp_path: Path
) -> None:
    run(JOB, sites(images, "before.csv"), tmp_path / "before")
    with raises(code):
        run(joined(**changes), sites(images, "after.csv"), tmp_path / "after")


def test_somebody_elses_chain_is_not_extended(images: Path, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "before", JOB)
    chain.save(chain.open(owner=Owner(name="lead", org="one")))
    chain.close()
    other = Chain(tmp_path / "after", joined())
    other.open(owner=Owner(name="lead", org="two"))
    with raises("chain.other-owner"):
        other.beside("before")
    with raises("chain.unknown"):
        other.beside("none")


@pytest.mark.parametrize(
    "federation",
    [
        {"secure": "statistics", "min_sites": 3},
        {"private": {"clip": 1.0, "noise": 1.0}},
        {"rounds": 1},
    ],
)
def test_what_no_sum_of_single_sites_gives_is_not_extended(federation: dict[str, Any]) -> None:
    with raises("config.conflict"):
        joined(federation=federation)


def test_the_job_of_the_new_chain_asks_the_one_site_and_names_the_class_last(tmp_path: Path) -> None:
    job = JOB.override({"policy": {"share_prototypes": ["A", "B"]}})
    write_job(job, tmp_path / "old" / job.name, dict.fromkeys(("nord", "ost")))
    folder = extend_job(tmp_path / "old" / job.name, tmp_path / "jobs", chain="ab-12", new_class=NEW, site="west")
    made = find_job(folder, "JOB")
    assert made.task.class_names == (*CLASSES, NEW)
    assert made.head.extends is not None
    assert (made.head.extends.chain, made.head.extends.site) == ("ab-12", "west")
    assert made.policy.share_prototypes == ("A", "B", NEW)
    assert '"west"' in (folder / "meta.json").read_text()
    with raises("config.value", "--class"):
        extended(job, chain="ab-12", new_class="A", site="west")
    with raises("extend.nothing-kept"):
        extended(job.override({"head": {"keep": False}}), chain="ab-12", new_class=NEW, site="west")
    with raises("file.foreign"):
        extend_job(tmp_path / "old" / job.name, tmp_path / "jobs", chain="ab-12", new_class=NEW, site="west")
