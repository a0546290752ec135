"""The paper's two small examples: the shift of a classifier's direction, and the collapse of a feature space."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.lab.studies.base import Cells, Outcome, Setting, StudyTable
from fedmr_med.losses import inter_class_loss, intra_class_loss
from fedmr_med.prototypes import ClassSums
from fedmr_med.report.elements import Section, figure, figures_side_by_side, join, legend
from fedmr_med.report.svg import scatter
from fedmr_med.seeding import derive_seed, torch_stream

RADIUS = 0.5
CENTRES = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
LOCAL = (0, 1)
_CIRCLES = ((1.0, 0.0), (0.0, math.sqrt(3)), (0.0, -math.sqrt(3)))
_SAMPLES = 5000


def discs(centres: Sequence[tuple[float, float]], samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw points uniformly from discs: (n, 2) points and (n,) the number of their disc."""
    labels = torch.arange(len(centres)).repeat_interleave(samples)
    angle = 2 * math.pi * torch.rand(len(labels), generator=generator)
    distance = RADIUS * torch.rand(len(labels), generator=generator).sqrt()
    points = torch.tensor(centres)[labels] + distance[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return points, labels


def motivation(setting: Setting) -> Outcome:
    """Average three linear classifiers that each saw two of three classes, and compare directions.

    Between two classes the best direction is that of the difference of their means; without a bias, the weights
    of the two are opposite.
    """
    rows: list[Cells] = []
    optimal = np.array(setting.paper.optimal)
    for seed in setting.seeds:
        generator = torch.Generator().manual_seed(derive_seed(seed, "motivation"))
        points, labels = discs(_CIRCLES, _SAMPLES, generator)
        means = np.stack([points[labels == c].mean(0).numpy() for c in range(3)])
        averaged = np.zeros((3, 2))
        for a, b in ((0, 1), (0, 2), (1, 2)):
            direction = (means[a] - means[b]) / np.linalg.norm(means[a] - means[b])
            averaged[a] += direction / 3
            averaged[b] -= direction / 3
        rows += [
            {
                "seed": seed,
                "class": number + 1,
                "weight, paper": _vector(setting.paper.averaged[number]),
                "weight, measured": _vector(averaged[number]),
                "shift, paper": f"{setting.paper.degrees:.1f} degrees",
                "shift, measured": f"{angle(averaged[number], optimal[number]):.1f} degrees",
            }
            for number in (1, 2)
        ]
    notes = [f"Class means of {_SAMPLES} samples per class; the optimal directions are the paper's."]
    return Outcome([StudyTable(setting.paper.title, rows)], notes=notes)


def angle(a: np.ndarray, b: np.ndarray) -> float:
    """Return the angle between two vectors in degrees."""
    cosine = float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


class ToyNetwork(nn.Module):
    """The paper's MLP: 2-128-3-4, the feature being the three numbers before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(2, 128)
        self.feature = nn.Linear(128, 3)
        self.classifier = nn.Linear(3, len(CENTRES))

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (n, 3) and logits (n, 4) of points (n, 2)."""
        features = self.feature(F.relu(self.hidden(points)))
        return features, self.classifier(features)


def toy(setting: Setting) -> Outcome:
    """Train on all four classes, on two, and on two with FedMR; look at the features on the unit sphere."""
    epochs = 3 if setting.budget.name == "smoke" else 50
    seed = setting.seeds[0]
    points, labels = discs(CENTRES, _SAMPLES, torch.Generator().manual_seed(derive_seed(seed, "toy")))
    local = torch.isin(labels, torch.tensor(LOCAL))
    everything = train_toy(points, labels, epochs, seed)
    with torch.no_grad():
        sums = ClassSums.from_features(everything(points)[0], labels, len(CENTRES))
    prototypes = (sums.sums / sums.counts[:, None]).float()
    networks = {
        "all four classes": everything,
        "two classes": train_toy(points[local], labels[local], epochs, seed),
        "two classes with FedMR": train_toy(points[local], labels[local], epochs, seed, prototypes),
    }
    rows: list[Cells] = []
    spheres = {}
    for title, network in networks.items():
        with torch.no_grad():
            features = network(points)[0]
            spheres[title] = F.normalize(features).numpy()
            missing = torch.cdist(features[~local], prototypes).argmin(1)
            invaded = torch.isin(missing, torch.tensor(LOCAL)).double().mean()
        rows.append(
            {
                "trained on": title,
                "paper": "a picture",
                "spread of the features": round(spread(features[local]), 4),
                "missing classes nearest to a local prototype, %": round(100 * float(invaded), 1),
            }
        )
    notes = [
        "Spread: share of the variance, of the local classes' features on the unit sphere, outside its main direction.",
        "The prototypes are the class means of the network that saw all classes. The paper gives no coefficients for "
        f"this example; mu1 = {_MU1:g}, mu2 = {_MU2:g}. Its 50 iterations are read as passes over the data: "
        f"{epochs} of them here.",
    ]
    return Outcome([StudyTable(setting.paper.title, rows)], [_spheres(spheres, labels.numpy())], notes)


_MU1, _MU2 = 0.1, 0.1


def train_toy(points: Tensor, labels: Tensor, epochs: int, seed: int, prototypes: Tensor | None = None) -> ToyNetwork:
    """Train the MLP by SGD with learning rate 0.1 and batches of 128; with prototypes, by FedMR's losses too."""
    with torch_stream(seed, "toy network"):
        network = ToyNetwork()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(points)), 128):
                features, logits = network(points[rows])
                loss = F.cross_entropy(logits, labels[rows])
                if prototypes is not None:
                    loss = loss + _MU1 * intra_class_loss(features, labels[rows])
                    loss = loss + _MU2 * inter_class_loss(features, labels[rows], prototypes)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return network


def spread(features: Tensor) -> float:
    """Return the share of the variance of features (n, d), on the unit sphere, outside their first direction."""
    unit = F.normalize(features)
    values = torch.linalg.svdvals((unit - unit.mean(0)).double()).square()
    return float(1 - values[0] / values.sum())


def _vector(values: Sequence[float] | np.ndarray) -> str:
    return f"({values[0]:.3f}, {values[1]:.3f})"


def _spheres(spheres: dict[str, np.ndarray], labels: np.ndarray) -> Section:
    """Draw the features of every hundredth point from the direction (1, 1, 1), coloured by class."""
    view = np.array([[1, -1, 0], [-1, -1, 2]]) / np.sqrt([[2], [6]])
    pictures = []
    for title, features in spheres.items():
        flat = features[::100] @ view.T
        groups = {f"class {c + 1}": flat[labels[::100] == c].tolist() for c in range(len(CENTRES))}
        pictures.append(figure(scatter(title, groups), title))
    return Section("sphere", "Unit sphere", join([legend(list(groups)), figures_side_by_side(pictures)]))
