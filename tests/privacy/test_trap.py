"""Weights that a lead chooses make an opted-out hospital's update tell its class histogram; it refuses them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedmr_med.config import JobConfig
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.errors import FedMRError
from fedmr_med.models.small_cnn import SmallCNN
from fedmr_med.server.state import initial_state, with_weights
from fedmr_med.site.engine import Site
from fedmr_med.site.hospital import Hospital
from fedmr_med.sites import DemoSource, SiteConfig, load_site
from fedmr_med.wire.codec import decode_reply
from fedmr_med.wire.kinds import TRAIN
from tests.helpers import REPOSITORY
from tests.helpers.small import small_job, task_for

BATCH, EPOCHS, RATE = 8, 40, 1e-5
JOB = small_job(
    "fedavg",
    model={"options": {"feature_size": 128}},
    train={
        **{"optimizer": "sgd", "lr": RATE, "momentum": 0.0, "weight_decay": 0.0, "augment": False},
        **{"batch_size": BATCH, "updates": None, "epochs": EPOCHS},
    },
    loss={"name": "cross_entropy", "class_weights": "none"},
    federation={"min_sites": 3},
)


def msk(*approved: str) -> SiteConfig:
    """Return the opted-out hospital as shipped, on the demo, with weights on its list."""
    site = load_site(REPOSITORY / "sites" / "msk" / "site.yaml")
    assert site.policy.training is not None
    floors = site.policy.training.model_copy(update={"weights": approved})
    policy = site.policy.model_copy(update={"training": floors})
    return site.model_copy(update={"data": DemoSource(source="demo", center=HOSPITALS.index("msk")), "policy": policy})


def chosen_weights(folder: Path) -> Path:
    """Return a file with weights whose features are zero, so that the bias of the classifier counts labels."""
    torch.manual_seed(0)
    network = SmallCNN(8, 3, feature_size=128)
    with torch.no_grad():
        network.hidden.weight.zero_()
        network.hidden.bias.fill_(-1.0)
        network.classifier.bias.zero_()
    file = folder / "weights.pt"
    torch.save(network.state_dict(), file)
    return file


def histogram(job: JobConfig, weights: Path, site: SiteConfig, folder: Path) -> np.ndarray:
    """Return the numbers of training images per class as the server reads them from one update."""
    state = initial_state(job, weights)
    answer = Site.simulated("msk", job, site, folder / "site").exchange(TRAIN, task_for(state, job))
    reply = decode_reply(answer, "msk", num_classes=8, feature_size=128)
    images = len(Hospital("msk", job, site, folder / "truth").data.train)
    steps = -(-images // BATCH)
    moved = reply.model["classifier.bias"].astype(np.float64) - state.model["classifier.bias"]
    shares = moved / RATE / EPOCHS + steps / 8
    return shares / shares.sum() * images


@pytest.mark.parametrize("named", [False, True])
def test_an_opted_out_hospital_refuses_the_weights_and_tells_nothing(tmp_path: Path, *, named: bool) -> None:
    weights = chosen_weights(tmp_path)
    job = with_weights(JOB, weights) if named else JOB
    with pytest.raises(FedMRError) as error:
        histogram(job, weights, msk(), tmp_path)
    assert error.value.code == ("weights.not-approved" if named else "weights.not-the-jobs")


def test_weights_that_somebody_approved_read_the_class_histogram(tmp_path: Path) -> None:
    """The control: what an approval of such weights gives away, opted out or not."""
    weights = chosen_weights(tmp_path)
    job = with_weights(JOB, weights)
    assert job.model.weights is not None
    site = msk(job.model.weights)
    found = histogram(job, weights, site, tmp_path)
    assert np.abs(found - Hospital("msk", job, site, tmp_path / "truth").counts).max() < 0.5
