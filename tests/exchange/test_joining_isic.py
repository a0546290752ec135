"""A class joins on real images: five centres of Fed-ISIC2019, of which Rosendahl brings squamous cell carcinomas late.

``pytest tests/exchange/test_joining_isic.py --log-level=INFO -rP`` prints the figures of docs/leaving-and-joining.md.
"""

import csv
import logging
from pathlib import Path

import pytest

from fedmr_med.config import JobConfig
from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS, RAW_FOLDER
from fedmr_med.evaluation.score import Score
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.jobs.extend import extended
from fedmr_med.runner import Federation
from fedmr_med.sites import ManifestSource, SiteConfig
from tests.helpers.small import lenient
from tests.helpers.transports import outcome

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(3600)]

NEW, BRINGS = "SCC", "rosendahl"
# The images are public: with a least of one, each class counts, so that there is a balanced accuracy.
POLICY = lenient(share_prototypes=True, share_metrics="per_class", min_class_count=1)
JOB = isic_job("oneshot").override(
    {
        "task": {"class_names": [name for name in CLASS_NAMES if name != NEW], "image_size": 96, "preparation": None},
        "loss": {"name": "cross_entropy", "class_weights": "none"},
        "federation": {"min_sites": 3},
        "head": {"keep": True},
    }
)


def write_manifests(source: Path, out: Path) -> None:
    """Write two tables for each centre, without images of the new class and with them, which one centre alone has.

    Test images of a lesion that is in a train fold as well are left out.
    """
    with (source / "HAM10000_metadata.csv").open() as stream:
        lesions = {row["image_id"]: row["lesion_id"] for row in csv.DictReader(stream)}
    with (source / "train_test_split").open() as stream:
        rows = list(csv.DictReader(stream))
    known = {path.stem for path in (source / RAW_FOLDER).iterdir()}
    trained = {lesions.get(row["image"]) for row in rows if row["fold"] == "train"} - {None}
    for number, site in enumerate(HOSPITALS[1:], start=1):
        mine = [
            (
                f"{row['image']}.jpg",
                CLASS_NAMES[int(row["target"])],
                row["fold"],
                lesions.get(row["image"], row["image"]),
            )
            for row in rows
            if int(row["center"]) == number and row["image"] in known
            if row["fold"] == "train" or lesions.get(row["image"]) not in trained
        ]
        old = [row for row in mine if row[1] != NEW]
        for name, table in (("before", old), ("after", mine if site == BRINGS else old)):
            (out / name).mkdir(exist_ok=True)
            with (out / name / f"{site}.csv").open("w", newline="") as stream:
                csv.writer(stream).writerows([("image", "label", "fold", "group"), *table])


def sites(source: Path, folder: Path, manifest: str, *, without: str = "") -> dict[str, SiteConfig]:
    return {
        site: SiteConfig(
            data=ManifestSource(
                source="manifest", root=source / RAW_FOLDER, manifest=folder / manifest / f"{site}.csv"
            ),
            policy=POLICY,
            cache=folder / "cache",
        )
        for site in HOSPITALS[1:]
        if site != without
    }


def score(job: JobConfig, configs: dict[str, SiteConfig], folder: Path) -> tuple[dict[str, object], Score]:
    state = Federation(job, configs, folder).run()
    head = state.history.head
    assert head is not None
    assert head.evaluation is not None
    assert head.evaluation.pooled is not None
    pooled, names = head.evaluation.pooled, job.task.class_names
    recalls = (f"{n} {'-' if r is None else f'{r:.3f}'}" for n, r in zip(names, pooled.recall, strict=True))
    said = f"{pooled.text()}; {pooled.samples} test images; {', '.join(recalls)}; {head.bytes_up} bytes up"
    logging.getLogger(__name__).info("%s: %s", folder.name, said)
    return outcome(state), pooled


def test_the_result_is_that_of_a_federation_which_had_the_class_from_the_start(
    shared_data: Path, tmp_path: Path
) -> None:
    source = shared_data / "fed_isic2019"
    write_manifests(source, tmp_path)
    before = score(JOB, sites(source, tmp_path, "before"), tmp_path / "first")[1]
    joining = extended(JOB, chain="first", new_class=NEW, site=BRINGS)
    after, scored = score(joining, sites(source, tmp_path, "after"), tmp_path / "joined")
    whole = JOB.override({"task": {"class_names": [*JOB.task.class_names, NEW]}})
    start, expected = score(whole, sites(source, tmp_path, "after"), tmp_path / "start")
    assert after == start, "to the bit"
    assert scored == expected
    assert scored.recall[-1] is not None
    assert scored.recall[-1] > 1 / len(CLASS_NAMES), "the new class is told apart, better than by a guess"
    assert before.samples < scored.samples
    # And a centre leaves the joined chain, as if it had never been there.
    leaves = "vidir-modern"
    left, _ = score(
        joining.override({"federation": {"without": [leaves]}}), sites(source, tmp_path, "after"), tmp_path / "joined"
    )
    never, _ = score(whole, sites(source, tmp_path, "after", without=leaves), tmp_path / "never")
    assert left == never
