"""A lead's ordinary jobs with chosen weights do not read a patient's picture: no site answers for them."""

import logging
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.errors import FedMRError
from fedmr_med.server.state import with_weights
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import DemoSource, SiteConfig, load_site
from tests.helpers import REPOSITORY
from tests.helpers.one_patient import OnePatient, as_seen, attack_job

NAMES = ("vienna-dias", "rosendahl", "msk")


def shipped(name: str) -> SiteConfig:
    """Return a hospital with its policy as shipped, on the demo."""
    site = load_site(REPOSITORY / "sites" / name / "site.yaml")
    return site.model_copy(update={"data": DemoSource(source="demo", center=HOSPITALS.index(name))})


def distances(picture: np.ndarray, sites: dict[str, SiteConfig], folder: Path) -> np.ndarray:
    """Return the largest error of a value for each training picture of the sites, the nearest first."""
    found = []
    for name, site in sites.items():
        hospital = Hospital(name, attack_job("truth", 8), site, folder / name)
        found += [
            np.abs(as_seen(images) - picture).max(1) for images, _ in hospital.batches.plain.epoch("", shuffle=False)
        ]
    return np.sort(np.concatenate(found))


def test_the_one_patient_jobs_read_no_picture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sites = {name: shipped(name) for name in NAMES}
    attack = OnePatient(sites, tmp_path)
    with caplog.at_level(logging.WARNING):
        try:
            picture = attack.picture()
        except FedMRError as e:
            assert e.code == "exchange.no-answer"
            picture = None
    if picture is not None:
        error, *others = distances(picture, sites, tmp_path / "truth")
        pytest.fail(f"READ a picture of 972 values to within {error:.4f}; the next nearest differs by {others[0]:.2f}")
    named = with_weights(attack_job("probe1", 2201), tmp_path / "probe1.pt").model.weights
    for name in NAMES:
        (said,) = (text for text in caplog.messages if text.startswith(f"{name}: "))
        assert named in said
        assert "site jobs --approve" in said


@pytest.mark.slow
@pytest.mark.parametrize("max_share", [1, pytest.param(None, marks=pytest.mark.nightly)])
def test_approved_weights_read_a_picture_where_one_image_may_dominate(tmp_path: Path, max_share: int | None) -> None:
    """The control: without the rule the attack works, at sites that let chosen weights in."""
    sites = {name: shipped(name) for name in NAMES}
    for name, site in sites.items():
        policy = site.policy.model_copy(update={"training": None, "max_share": max_share})
        sites[name] = site.model_copy(update={"policy": policy})
    try:
        picture = OnePatient(sites, tmp_path).picture()
    except (IndexError, ValueError):
        picture = None  # no threshold that one picture alone passes
    read = picture is not None and distances(picture, sites, tmp_path / "truth")[0] < 0.05
    assert read == (max_share == 1)
