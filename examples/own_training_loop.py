"""FedMR's two losses in a training loop of your own: plain torch, no federation, no files, two seconds.

A site holds classes 0 and 1 of four, and received the prototypes of all four. It trains a small encoder twice: with the
classification loss alone, and with the intra-class and inter-class losses added. Printed for both: how many of its
features lie nearer to the prototype of another class than to their own (the invasion FedMR is about).

    python examples/own_training_loop.py
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med import ClassSums, Prototypes, inter_class_loss, intra_class_loss

CLASSES, FEATURES, LOCAL = 4, 16, (0, 1)


def points(classes: tuple[int, ...], generator: torch.Generator, per_class: int = 64) -> tuple[Tensor, Tensor]:
    """Return inputs (n, 8), a noisy cloud per class, and labels (n,)."""
    labels = torch.tensor(classes).repeat_interleave(per_class)
    centres = 2 * torch.randn(CLASSES, 8, generator=torch.Generator().manual_seed(7))
    return centres[labels] + torch.randn(len(labels), 8, generator=generator), labels


def network() -> tuple[nn.Module, nn.Module]:
    """Return an encoder and a classifier, always with the same initial weights."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, FEATURES)), nn.Linear(FEATURES, CLASSES)


def prototypes_of_the_federation() -> Prototypes:
    """Return what a server would send: mean features per class, added up from the sums of two sites."""
    encoder, _ = network()
    generator = torch.Generator().manual_seed(2)
    total = ClassSums.zeros(CLASSES, FEATURES)
    for classes in ((0, 1), (2, 3)):
        x, y = points(classes, generator)
        total = total + ClassSums.from_features(encoder(x), y, CLASSES)
    return Prototypes.none(CLASSES, FEATURES).updated(total)


def train(mu_intra: float, mu_inter: float) -> float:
    """Train on the local classes and return the share of features that are nearer to another class's prototype."""
    encoder, classifier = network()
    prototypes = prototypes_of_the_federation()
    x, y = points(LOCAL, torch.Generator().manual_seed(3))
    optimizer = torch.optim.SGD([*encoder.parameters(), *classifier.parameters()], lr=0.1)
    for _ in range(200):
        features = encoder(x)
        loss = F.cross_entropy(classifier(features), y)
        loss = loss + mu_intra * intra_class_loss(features, y)
        loss = loss + mu_inter * inter_class_loss(features, y, prototypes.means, available=prototypes.available)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    nearest = torch.cdist(encoder(x), prototypes.means).argmin(1)
    return float((nearest != y).float().mean())


def main() -> None:
    """Compare the two runs."""
    print(f"classification alone     {train(0, 0):6.1%} of the features lie nearer to another class's prototype")
    print(f"with FedMR's two losses  {train(0.1, 1):6.1%}")


if __name__ == "__main__":
    main()
