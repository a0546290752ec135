"""A hostile lead's three jobs: settings and chosen weights that read one patient's picture from a closed-form head.

The network passes the pixels on to its features, behind a gate that one picture alone opens. Two jobs find the gate's
threshold from class means, the third reads the picture. Server and sites are unmodified.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedmr_med.config import JobConfig, load_job
from fedmr_med.models.small_cnn import SmallCNN
from fedmr_med.runner import Federation
from fedmr_med.server.state import GlobalState
from fedmr_med.sites import SiteConfig
from tests.helpers import REPOSITORY

SIZE, WIDTH, OFFSET = 18, 32, 3.0
INPUTS = 2 * WIDTH * 25
SHIFTS = ((0, 0), (0, 1), (1, 0), (1, 1))
PIXELS = [(channel, y, x) for channel in range(12) for y in range(9) for x in range(9)]


@dataclass(frozen=True)
class OnePatient:
    """The attack on a class of some sites.

    Attributes:
        sites: settings of each site by name.
        folder: for what the jobs write.
        label: of the class.
    """

    sites: Mapping[str, SiteConfig]
    folder: Path
    label: int = 0

    def picture(self) -> npt.NDArray[np.float64]:
        """Return the picture that was read, 972 values in the order of :data:`PIXELS`."""
        gate = torch.zeros(INPUTS)
        gate[[place(*pixel) for pixel in PIXELS]] = torch.from_numpy(
            np.random.default_rng(5).standard_normal(len(PIXELS))
        ).float()

        def means_above(name: str, thresholds: Tensor, scale: float) -> npt.NDArray[np.float64]:
            return self.means(name, gate.repeat(len(thresholds), 1), -thresholds, scale)

        coarse = torch.linspace(-150.0, 400.0, 2200)
        last = int(np.flatnonzero(means_above("probe1", coarse, 0.01) > 0).max())
        fine = torch.linspace(float(coarse[last - 60]), float(coarse[last + 2]), 2200)
        found, at = means_above("probe2", fine, 3.0), fine.double().numpy()
        last = int(np.flatnonzero(found > 1e-9).max())
        slopes = -np.diff(found) / (at[1] - at[0])
        share = slopes[last - 2]  # of one picture in the mean of its class
        alone = at[int(np.flatnonzero(np.round(slopes / share)[: last - 1] == 1).min()) + 1]
        middle = alone + 0.5 * (at[last] + found[last] / share - alone)
        gain = 8.0 / (middle - alone)
        rows = (gain * gate).repeat(len(PIXELS) + 1, 1)
        for row, pixel in enumerate(PIXELS):
            rows[row, place(*pixel)] += 1
        read = self.means("read", rows, torch.full((len(rows),), -gain * middle), 3.0) / share
        return np.asarray(read[:-1] - read[-1] - OFFSET)

    def means(self, name: str, rows: Tensor, bias: Tensor, scale: float) -> npt.NDArray[np.float64]:
        """Return the class mean of chosen features, ``relu(scale * (rows @ pixels + bias))``, over ``scale``.

        With all shrinkage a head's weights are the means but for one factor, which a feature of a known value tells.
        """
        rows, bias = torch.cat([torch.zeros(1, INPUTS), rows]), torch.cat([torch.ones(1), bias])
        network = crafted(scale * rows, scale * bias)
        file = self.folder / f"{name}.pt"
        torch.save(network.state_dict(), file)
        state = self.run(attack_job(name, len(rows)), file)
        weights = state.head["classifier.weight"][self.label].astype(np.float64)
        return weights[1:] / weights[0]

    def run(self, job: JobConfig, weights: Path) -> GlobalState:
        """Run one of the jobs."""
        return Federation(job, self.sites, self.folder / job.name, initial_model=weights).run()


def attack_job(name: str, features: int) -> JobConfig:
    """Return the shipped one-shot job with a network for the purpose; every setting keeps to the default floors."""
    base = load_job(REPOSITORY / "jobs/isic_oneshot/app/config/fedmr.yaml").for_demo()
    return base.override(
        {
            "name": name,
            "chain": name,
            "task": {"image_size": SIZE, "transform": "imagenet"},
            "model": {
                "name": "small_cnn",
                "options": {"width": WIDTH, "feature_size": features},
                "freeze_backbone": False,
            },
            "train": {"batch_size": 16, "updates": 10, "epochs": None},
            "federation": {"min_sites": 3, "rounds": 0},
            "head": {"shrinkage": 1},
        }
    )


def crafted(rows: Tensor, bias: Tensor) -> SmallCNN:
    """Return a network whose last layer (rows, bias) sees the pixels: each color by four shifts, at four places."""
    torch.manual_seed(0)
    network = SmallCNN(8, 3, width=WIDTH, feature_size=len(rows))
    with torch.no_grad():
        for layer in (network.conv1, network.conv2):
            layer.weight.zero_()
            layer.bias.zero_()
        for channel in range(12):
            colour, shift = divmod(channel, 4)
            dy, dx = SHIFTS[shift]
            network.conv1.weight[channel, colour, 2 + dy, 2 + dx] = 1
            network.conv1.bias[channel] = OFFSET
            for part, (oy, ox) in enumerate(SHIFTS):
                network.conv2.weight[4 * channel + part, channel, 4 * oy, 4 * ox] = 1
        network.hidden.weight.copy_(rows)
        network.hidden.bias.copy_(bias)
    return network


def place(channel: int, y: int, x: int) -> int:
    """Return which input of the last layer holds a value of the first one's pooled map, 12 x 9 x 9."""
    down, right = int(y > 4), int(x > 4)
    return (4 * channel + 2 * down + right) * 25 + (y - 4 * down) * 5 + (x - 4 * right)


def as_seen(images: Tensor) -> npt.NDArray[np.float64]:
    """Return pictures (n, 3, 18, 18) as the attack would read them: (n, 972)."""
    network = crafted(torch.zeros(1, INPUTS), torch.zeros(1))
    with torch.no_grad():
        maps = torch.relu(torch.nn.functional.max_pool2d(network.conv1(images), 2))
    return np.stack([maps[:, channel, y, x].double().numpy() - OFFSET for channel, y, x in PIXELS], axis=1)
