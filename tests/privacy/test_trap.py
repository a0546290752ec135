"""Weights that a lead chooses make an opted-out hospital's update tell its class histogram, or single pictures.

It refuses them. The pictures are read as in *Robbing the Fed* (Fowl et al. 2022): rows of the hidden layer are equal
with rising thresholds, so the updates of two neighbors differ by the pictures between their thresholds.
"""

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
from fedmr_med.wire.kinds import TRAIN
from tests.helpers import REPOSITORY
from tests.helpers.one_patient import INPUTS, SIZE, WIDTH, crafted
from tests.helpers.replies import read_reply
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
TRAPS, SEEN = 1500, 48 * 25
"""Rows of the hidden layer, and how many of its inputs see pixels."""
TRAP = JOB.override(
    {
        "task": {"image_size": SIZE, "transform": "imagenet"},
        "model": {"options": {"width": WIDTH, "feature_size": TRAPS}},
        "train": {"lr": 0.02, "epochs": 2},
    }
)


def demo(name: str) -> DemoSource:
    return DemoSource(source="demo", center=HOSPITALS.index(name))


def msk(*approved: str) -> SiteConfig:
    """Return the opted-out hospital as shipped, on the demo, with weights on its list."""
    site = load_site(REPOSITORY / "sites" / "msk" / "site.yaml")
    assert site.policy.training is not None
    floors = site.policy.training.model_copy(update={"weights": approved})
    policy = site.policy.model_copy(update={"training": floors})
    return site.model_copy(update={"data": demo("msk"), "policy": policy})


def counting(folder: Path) -> Path:
    """Return a file with weights whose features are zero, so that the bias of the classifier counts labels."""
    torch.manual_seed(0)
    network = SmallCNN(8, 3, feature_size=128)
    with torch.no_grad():
        network.hidden.weight.zero_()
        network.hidden.bias.fill_(-1.0)
        network.classifier.bias.zero_()
    return written(network, folder)


def trapping(folder: Path) -> Path:
    """Return a file with weights that let the hidden layer keep pictures apart."""
    gate = torch.from_numpy(np.random.default_rng(5).standard_normal(INPUTS)).float() * 1e-4
    network = crafted(gate.repeat(TRAPS, 1), torch.zeros(TRAPS))
    like = Hospital("rosendahl", TRAP, msk().model_copy(update={"data": demo("rosendahl")}), folder / "like")
    seen = inputs(network, like) @ gate.double().numpy()  # of pictures that the attacker has anyway
    levels = torch.special.ndtri(torch.linspace(0.0005, 0.9995, TRAPS, dtype=torch.float64))
    with torch.no_grad():
        network.hidden.bias.copy_(-(seen.mean() + 1.15 * seen.std() * levels))
        network.classifier.weight.copy_(torch.linspace(-1e-3, 1e-3, 8)[:, None].expand(8, TRAPS))
        network.classifier.bias.zero_()
    return written(network, folder)


def written(network: SmallCNN, folder: Path) -> Path:
    torch.save(network.state_dict(), folder / "weights.pt")
    return folder / "weights.pt"


def inputs(network: SmallCNN, hospital: Hospital) -> np.ndarray:
    """Return what the last layer sees of a hospital's training pictures (n, INPUTS)."""
    rows = []
    with torch.no_grad():
        for images, _ in hospital.batches.plain.epoch("", shuffle=False):
            maps = torch.relu(torch.nn.functional.max_pool2d(network.conv1(images), 2))
            rows.append(torch.relu(network.pool(network.conv2(maps))).flatten(1))
    return torch.cat(rows).double().numpy()


def update(job: JobConfig, weights: Path, site: SiteConfig, folder: Path) -> dict[str, np.ndarray]:
    """Return how far each array of the model moved in one round at msk, as the server reads it."""
    state = initial_state(job, weights)
    answer = Site.simulated("msk", job, site, folder / "site").exchange(TRAIN, task_for(state, job))
    size = int(job.model.options["feature_size"])
    reply = read_reply(TRAIN, answer, "msk", num_classes=8, feature_size=size)
    return {name: array.astype(np.float64) - state.model[name] for name, array in reply.model.items()}


def histogram(job: JobConfig, weights: Path, site: SiteConfig, folder: Path) -> np.ndarray:
    """Return the numbers of training images per class as the server reads them from one update."""
    moved = update(job, weights, site, folder)["classifier.bias"]
    images = len(Hospital("msk", job, site, folder / "truth").data.train)
    shares = moved / RATE / EPOCHS + -(-images // BATCH) / 8
    return shares / shares.sum() * images


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", ["counting", "trapping"])
def test_an_opted_out_hospital_refuses_the_weights_and_tells_nothing(tmp_path: Path, kind: str, *, named: bool) -> None:
    base, weights = (JOB, counting(tmp_path)) if kind == "counting" else (TRAP, trapping(tmp_path))
    job = with_weights(base, weights) if named else base
    with pytest.raises(FedMRError) as error:
        update(job, weights, msk(), tmp_path)
    assert error.value.code == ("weights.not-approved" if named else "weights.not-the-jobs")


def test_weights_that_somebody_approved_read_single_pictures(tmp_path: Path) -> None:
    """The control: the traps hold some of the opted-out hospital's pictures."""
    weights = trapping(tmp_path)
    job = with_weights(TRAP, weights)
    assert job.model.weights is not None
    site = msk(job.model.weights)
    moved = update(job, weights, site, tmp_path)
    between = {name: moved[f"hidden.{name}"][:-1] - moved[f"hidden.{name}"][1:] for name in ("weight", "bias")}
    kept = np.abs(between["bias"]) > 1e-7
    read = (between["weight"][kept] / between["bias"][kept, None])[:, :SEEN]
    pictures = inputs(crafted(torch.zeros(1, INPUTS), torch.zeros(1)), Hospital("msk", job, site, tmp_path / "truth"))
    alike = np.corrcoef(read, pictures[:, :SEEN])[: len(read), len(read) :]
    assert (alike.max(0) > 0.999).sum() >= 5


@pytest.mark.slow
def test_weights_that_somebody_approved_read_the_class_histogram(tmp_path: Path) -> None:
    """The control: what an approval of such weights gives away, opted out or not."""
    weights = counting(tmp_path)
    job = with_weights(JOB, weights)
    assert job.model.weights is not None
    site = msk(job.model.weights)
    found = histogram(job, weights, site, tmp_path)
    assert np.abs(found - Hospital("msk", job, site, tmp_path / "truth").counts).max() < 0.5
