"""What the server gets of one site in a job with secure sums: frames that look random, and tell an attack nothing."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from fedmr_med.arrays import Vector
from fedmr_med.lab.audit.attacks import counts, images
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.prototypes import ClassSums
from fedmr_med.runner import Federation
from fedmr_med.secure.messages import Masked
from fedmr_med.secure.summing import SecureSum
from fedmr_med.site.training import class_sums
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.small import OPEN, small_hospital, small_job

CENTRES = {"rosendahl": 3, "msk": 4, "vienna-dias": 5}
AUDITED = "rosendahl"
COUNTS, SUMS = "prototypes/counts", "prototypes/sums"
LEAST = 1e-4  # p-value; true randomness is below it once in ten thousand tests


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vector]:
    """The masked vectors of one site by release, as they arrive at the server of a whole job."""
    seen: dict[str, dict[str, Vector]] = defaultdict(dict)
    taken = SecureSum.take_masked

    def take(self: SecureSum, masked: Masked) -> None:
        seen[masked.site][self.release.name] = masked.vector.copy()
        taken(self, masked)

    job = small_job(federation={"secure": "statistics", "min_sites": 3, "rounds": 2})
    sites = {name: SiteConfig(data=DemoSource(source="demo", center=c), policy=OPEN) for name, c in CENTRES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureSum, "take_masked", take)
        state = Federation(job, sites, tmp_path_factory.mktemp("job")).run()
    assert all(record.secure and record.secure.error is None for record in state.history.rounds), "totals were opened"
    return seen[AUDITED]


def least_likely(vector: Vector) -> float:
    """Return the lowest p-value of three tests of uniform numbers: of bytes, of whole numbers, of each bit's mean."""
    content = np.frombuffer(vector.tobytes(), np.uint8)
    cells = stats.chisquare(np.bincount(content, minlength=256)).pvalue
    whole = stats.kstest(vector.astype(np.float64) / 2.0**64, "uniform").pvalue
    ones = np.unpackbits(content.reshape(-1, 8), axis=1).mean(0)
    bits = 2 * stats.norm.sf(np.abs(ones - 0.5).max() * 2 * np.sqrt(len(vector))) * ones.size
    return float(min(cells, whole, bits))


@pytest.mark.slow
def test_the_frames_of_one_site_cannot_be_told_from_uniform_numbers(frames: dict[str, Vector]) -> None:
    """Most of what is in them is zeros: classes that the site lacks, empty cells of histograms."""
    assert len(frames) >= 3, "two rounds, and the final scores"
    for name, vector in frames.items():
        assert least_likely(vector) > LEAST, name


def test_two_frames_of_one_site_have_nothing_in_common(frames: dict[str, Vector]) -> None:
    """Numbers of images are the same in both rounds: equal masks would show in the difference."""
    first, second = (vector for name, vector in frames.items() if name.startswith("train"))
    assert least_likely(first - second) > LEAST


def test_the_frames_give_nothing_to_the_attacks(frames: dict[str, Vector], tmp_path: Path) -> None:
    job = small_job()
    hospital = small_hospital(AUDITED, job, tmp_path)
    classes = job.task.num_classes
    true = class_sums(hospital.network, hospital.batches.plain, classes)
    assert counts.counts_read(true, hospital.counts) == 1, "the attack works on what is not masked"
    layout = reply_form(job).layout(next(iter(frames)))
    plain = layout.pack({COUNTS: true.counts.numpy(), SUMS: true.sums.numpy()})
    assert least_likely(plain) < LEAST, "and so do the tests"
    means = (true.sums / true.counts.clamp(min=1)[:, None]).numpy()
    for name in (name for name in frames if name.startswith("train")):
        seen = layout.unpack(frames[name])
        read = ClassSums(torch.from_numpy(seen[SUMS]), torch.from_numpy(seen[COUNTS]))
        assert counts.counts_read(read, hospital.counts) == 0
        assert images.is_one_image(read, means) == 0
        held = hospital.counts > 0
        assert abs(np.corrcoef(seen[SUMS][held].ravel(), true.sums.numpy()[held].ravel())[0, 1]) < 0.2
