"""Differentially private local training (DP-SGD, Abadi et al. 2016), and what it costs of a site's budget.

Each step draws every image, or every patient where the table names them, independently with the same probability, sums
the clipped gradients of what was drawn, and adds Gaussian noise. What is drawn, how images are augmented, dropout and
noise all come from the operating system: the server knows the job's seed, and the accounting counts on draws that
nobody can see.
"""

import logging
import secrets
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedmr_med.config import JobConfig, PrivateTrainConfig
from fedmr_med.data.base import Fold, class_counts, units
from fedmr_med.data.loading import Batches
from fedmr_med.methods.base import ClientHalf
from fedmr_med.network import Network
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import BudgetError
from fedmr_med.secure.noise import normals, uniforms
from fedmr_med.seeding import torch_stream
from fedmr_med.site import optim
from fedmr_med.site.criterion import Criterion
from fedmr_med.site.ledger import Ledger
from fedmr_med.site.optim import Optimizer
from fedmr_med.site.private import image_shares
from fedmr_med.site.training import Aborted, Trained, objective, to_device

_NUMBERS_AT_ONCE = 2**26
"""Numbers in the gradients that are held at a time: a quarter of a gigabyte."""

Shares = npt.NDArray[np.float64]
Objective = Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]

_log = logging.getLogger(__name__)


class PrivateTraining:
    """Trains at one site with noise on the gradients, and keeps account of it.

    Attributes:
        samples: number of training images as the reply has it. Noise, rate, steps and epsilon depend on no other.
        rate: probability with which a step draws an image, or a patient: the batch size over that number.

    Args:
        settings: the job's ``train.private``.
        ledger: of the budget for training.
    """

    def __init__(
        self, site: str, job: JobConfig, settings: PrivateTrainConfig, policy: SitePolicy, fold: Fold, ledger: Ledger
    ):
        self._site, self._train, self._budget = site, job.train, policy.training_privacy
        self._settings = settings
        self.ledger = ledger
        self._shares = image_shares(fold)
        self._units = units(fold)
        self.samples = policy.released_samples(class_counts(fold, job.task.num_classes), job.task.class_names)
        self.rate = min(1.0, job.train.batch_size / self.samples)

    def charge(self, steps: int, *, chain: str, release: str) -> None:
        """Write down a round of training before it begins. One that is stopped, or repeated, has been spent for.

        Raises:
            BudgetError: the budget does not allow it.
            PolicyError: the ledger of the budget is not the latest.
        """
        noise, budget = self._settings.noise, self._budget
        spent = self.ledger.spend(budget, chain=chain, release=release, noise=noise, rate=self.rate, steps=steps)
        if budget is not None and not spent:
            raise BudgetError(
                f"{release} would cost more than is left of epsilon {budget.epsilon:g} "
                f"(policy.training_privacy; {self.ledger.total(budget.delta):.2f} is spent).",
                code="budget.spent",
                key="policy.training_privacy",
            )
        if budget is not None:
            _log.info("%s: epsilon of training after %s: %.2f", self._site, release, self.ledger.total(budget.delta))

    def train(
        self,
        network: Network,
        client: ClientHalf,
        batches: Batches,
        criterion: Criterion,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Trained:
        """Train ``network`` in place for one round, like :func:`fedmr_med.site.training.train`.

        It returns no terms of the objective: they have no noise, so they must not leave.

        Raises:
            Aborted: ``should_stop`` said so.
        """
        secret = secrets.randbits(63)
        network.train()
        plan = [self.drawn() for _ in range(client.local.steps)]
        ready = batches.drawn(secret, "augmentation", plan=[rows for rows in plan if rows])
        optimizer = optim.build(network.parameters(), self._train)
        with torch_stream(secret, "network"):
            for rows in plan:
                if should_stop():
                    raise Aborted
                private_step(
                    network,
                    client,
                    optimizer,
                    criterion,
                    next(ready) if rows else None,
                    self._settings,
                    precision=self._train.precision,
                    shares=self._shares[list(rows)],
                    expected=self.rate * self.samples,
                )
        optimizer.zero_grad()
        return Trained(client.finish({name: tensor.detach() for name, tensor in network.named_parameters()}), {})

    def drawn(self) -> tuple[int, ...]:
        """Draw the images of a step: all images of a patient, or none."""
        taken = uniforms(int(self._units.max()) + 1) < self.rate
        return tuple(np.flatnonzero(taken[self._units]).tolist())


def private_step(
    network: Network,
    client: ClientHalf,
    optimizer: Optimizer,
    criterion: Criterion,
    batch: tuple[Tensor, Tensor] | None,
    settings: PrivateTrainConfig,
    *,
    precision: str,
    shares: Shares,
    expected: float,
) -> None:
    """Take one optimiser step; without a batch, on noise and the method's penalties alone.

    Args:
        network, client, optimizer, criterion: as in :func:`fedmr_med.site.training.train_step`.
        batch: images (B, ...) and labels (B,); None if no image was drawn.
        settings: clip and noise.
        shares: (B,) how much each image counts.
        expected: what the sum is divided by, a number that everybody knows: the images that a step draws on average.
    """
    optimizer.zero_grad()
    parameters = {name: tensor for name, tensor in network.named_parameters() if tensor.requires_grad}
    sums = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
    if batch is not None:
        device = next(network.parameters()).device
        images, labels = (to_device(part, device) for part in batch)
        counted = torch.from_numpy(shares).to(device)
        sums = clipped_sum(network, client, criterion, images, labels, counted, settings.clip, precision)
    for name, tensor in parameters.items():
        noise = torch.from_numpy(normals(tuple(tensor.shape))).to(tensor)
        tensor.grad = (sums[name] + settings.clip * settings.noise * noise) / expected
    if penalties := client.penalties():
        torch.stack([*penalties.values()]).sum().backward()  # type: ignore[no-untyped-call]
    client.after_backward()
    optimizer.step()


def clipped_sum(
    network: Network,
    client: ClientHalf,
    criterion: Criterion,
    images: Tensor,
    labels: Tensor,
    shares: Tensor,
    clip: float,
    precision: str = "float32",
) -> dict[str, Tensor]:
    """Return the sum of the images' clipped gradients by parameter: none moves it by more than clip times its share.

    An image whose gradient is not finite counts as one without a gradient.

    ``torch.func`` runs network and objective on one image at a time, vectorised. So no image can act on the share of
    another, whatever network and loss do within a batch, and buffers cannot change.

    Args:
        network: in training mode; it is not changed.
        client: the method's client half, of whose objective each gradient is; its penalties are no part of it.
        shares: (B,) how much each image counts.
        clip: largest length of a gradient.
    """
    parameters = {name: tensor.detach() for name, tensor in network.named_parameters() if tensor.requires_grad}
    one = vmap(grad(_objective(network, client, criterion, precision)), in_dims=(None, 0, 0), randomness="different")
    size = max(1, _NUMBERS_AT_ONCE // sum(tensor.numel() for tensor in parameters.values()))
    sums = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
    for start in range(0, len(labels), size):
        rows = slice(start, start + size)
        gradients = one(parameters, images[rows], labels[rows])
        norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients.values()]).norm(dim=0)
        finite = norms.isfinite()
        factors = torch.where(finite, shares[rows].to(norms) * (clip / norms.clamp(min=clip)), 0)
        for name, gradient in gradients.items():
            # Zero times infinity is not zero.
            kept = gradient if finite.all() else gradient.nan_to_num(posinf=0, neginf=0)
            sums[name] += torch.tensordot(factors.to(kept), kept, dims=1)
    return sums


def _objective(network: Network, client: ClientHalf, criterion: Criterion, precision: str) -> Objective:
    """Return the objective of one image, given the parameters, the image and its label."""
    buffers = dict(network.named_buffers())
    fixed = {name: tensor for name, tensor in network.named_parameters() if not tensor.requires_grad}

    def of_one(parameters: Mapping[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        def forward(images: Tensor) -> tuple[Tensor, Tensor]:
            features, logits = functional_call(network, {**parameters, **fixed, **buffers}, (images,))
            return features, logits

        terms = objective(forward, client, criterion, image[None], label[None], precision)
        return torch.stack([*terms.values()]).sum()

    return of_one
