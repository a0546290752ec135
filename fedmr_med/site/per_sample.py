"""Gradients of single images: each as if it were a batch of its own, clipped, and summed.

``torch.func`` runs network and objective on one image at a time, vectorised. So no image can act on the share of
another, whatever network and loss do within a batch, and buffers cannot change.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedmr_med.methods.base import Batch, ClientHalf
from fedmr_med.network import Network
from fedmr_med.site.criterion import Criterion
from fedmr_med.site.training import autocast

_NUMBERS_AT_ONCE = 2**26
"""Numbers in the gradients that are held at a time: a quarter of a gigabyte."""

Objective = Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]


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

    Args:
        network: in training mode; it is not changed.
        client: the method's client half, of whose objective each gradient is; its penalties are no part of it.
        criterion: the classification loss.
        images: (B, ...).
        labels: (B,).
        shares: (B,) how much each image counts.
        clip: largest length of a gradient.
        precision: of the forward pass.
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

    def objective(parameters: Mapping[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        images, labels = image[None], label[None]
        with autocast(image.device, precision):
            features, logits = functional_call(network, {**parameters, **fixed, **buffers}, (images,))
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        classification = criterion(client.seen_logits(exact), labels)
        terms = client.objective(Batch(images, labels, features, logits, classification))
        return torch.stack([*terms.values()]).sum()

    return objective
