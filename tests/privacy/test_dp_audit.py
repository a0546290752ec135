"""Epsilon is one: no attack on releases with and without a canary proves more than a site reports.

The same audit proves more where a mechanism is broken, as each of them was once, or could be.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.privacy.mechanisms import Gaussian
from fedmr_med.site import private, private_training
from tests.helpers.dp_audit import audited

KINDS = ("prototypes", "head", "training")


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True], ids=["images", "patients"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_an_audit_proves_is_less_than_what_is_reported(tmp_path: Path, kind: str, grouped: bool) -> None:
    mechanism = audited(kind, tmp_path, grouped=grouped, noise=0.5)
    assert 0.2 < mechanism.proven(runs=120) <= mechanism.reported


@pytest.mark.nightly
@pytest.mark.parametrize("grouped", [False, True], ids=["images", "patients"])
@pytest.mark.parametrize(
    ("kind", "noise", "rate"),
    [
        ("prototypes", 1.0, 1.0),
        ("head", 1.0, 1.0),
        ("training", 1.0, 1.0),
        ("training", 0.8, 0.4),
        ("training", 8, 0.4),
    ],
)
def test_long_audits_stay_below_what_is_reported(
    tmp_path: Path, kind: str, noise: float, rate: float, grouped: bool
) -> None:
    mechanism = audited(kind, tmp_path, grouped=grouped, noise=noise, rate=rate)
    proven = mechanism.proven(runs=2000)
    assert proven <= mechanism.reported
    assert noise > 1 or proven > 0.1 * mechanism.reported, "an attack that proves nothing audits nothing"


def divides_by_the_exact_number(patch: pytest.MonkeyPatch) -> None:
    exact = private_training.private_step

    def step(*arguments: object, shares: np.ndarray, expected: float, **more: object) -> None:
        exact(*arguments, shares=shares, expected=shares.sum(), **more)  # type: ignore[arg-type]

    patch.setattr(private_training, "private_step", step)


def adds_a_twentieth_of_the_noise(patch: pytest.MonkeyPatch) -> None:
    exact = private_training.normals
    patch.setattr(private_training, "normals", lambda shape: exact(shape) / 20)


def protects_images_in_the_place_of_patients(patch: pytest.MonkeyPatch) -> None:
    for module in (private, private_training):
        patch.setattr(module, "image_shares", lambda fold: np.ones(len(fold)))


def does_not_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(private, "clipped_features", lambda features, clip: features / 10)


def adds_no_noise_where_there_is_no_image(patch: pytest.MonkeyPatch) -> None:
    exact = Gaussian.add_to

    def add_to(self: Gaussian, sums: object, weights: np.ndarray, **more: int) -> object:
        noisy = exact(self, sums, weights, **more)  # type: ignore[arg-type]
        noisy.sums[weights == 0] = 0
        noisy.counts[weights == 0] = 0
        return noisy

    patch.setattr(Gaussian, "add_to", add_to)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "grouped", "broken"),
    [
        ("training", False, divides_by_the_exact_number),
        ("training", False, adds_a_twentieth_of_the_noise),
        ("training", True, protects_images_in_the_place_of_patients),
        ("prototypes", True, protects_images_in_the_place_of_patients),
        ("head", True, protects_images_in_the_place_of_patients),
        ("prototypes", False, does_not_clip),
        ("head", False, does_not_clip),
        ("prototypes", False, adds_no_noise_where_there_is_no_image),
    ],
)
def test_the_audit_catches_a_broken_mechanism(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    grouped: bool,
    broken: Callable[[pytest.MonkeyPatch], None],
) -> None:
    noise = 8.0 if broken is divides_by_the_exact_number else 3.0
    mechanism = audited(kind, tmp_path, grouped=grouped, noise=noise)
    broken(monkeypatch)
    assert mechanism.proven(runs=160) > mechanism.reported
