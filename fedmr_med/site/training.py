"""One local round: method x network x batches -> update. And the two passes in evaluation mode."""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmr_med.config import TrainConfig
from fedmr_med.data.loading import Batches
from fedmr_med.methods.base import Batch, ClientHalf, LocalResult
from fedmr_med.network import Network
from fedmr_med.prototypes import ClassSums
from fedmr_med.site import optim
from fedmr_med.site.criterion import Criterion
from fedmr_med.site.optim import Optimizer
from fedmr_med.site.raw_features import check_not_raw

FAR = 1.5
"""How many times as long features may be in one mode as in the other before the site warns."""

_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_IMAGE_DIMENSIONS = 4  # batch, channels, height, width
_log = logging.getLogger(__name__)


class Aborted(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The job was stopped while a site was training."""


@dataclass(frozen=True)
class Trained:
    """What local training gave.

    Attributes:
        result: what the method's client half sends and keeps.
        terms: mean of each weighted term of the objective over the steps.
    """

    result: LocalResult
    terms: dict[str, float]


def local_steps(samples: int, train: TrainConfig) -> int:
    """Return the number of optimiser steps of one round; a last batch of one sample is dropped (BatchNorm)."""
    if train.updates is not None:
        return train.updates
    full, rest = divmod(samples, train.batch_size)
    return (full + (rest > 1)) * (train.epochs or 0)


def train(
    network: Network,
    client: ClientHalf,
    batches: Batches,
    criterion: Criterion,
    config: TrainConfig,
    *,
    stream: tuple[int | str, ...],
    should_stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train ``network`` in place for one round.

    Args:
        network: holds the global weights; afterwards the local ones.
        stream: (seed, site, round), the randomness of this round.
        should_stop: asked before every step.

    Raises:
        Aborted: ``should_stop`` said so.
    """
    device = next(network.parameters()).device
    optimizer = optim.build(network.parameters(), config)
    sums: dict[str, Tensor] = {}
    network.train()
    for module in network.modules():
        if config.norm_statistics == "frozen" and isinstance(module, _BATCH_NORM):
            module.eval()
    for images, labels in itertools.islice(endless(batches, stream), client.local.steps):
        if should_stop():
            raise Aborted
        for name, term in train_step(network, client, optimizer, criterion, images, labels, config.precision).items():
            sums[name] = sums.get(name, torch.zeros((), device=device)) + term
    optimizer.zero_grad()  # the gradients are as large as the model; free them before the reply is made
    trained = {name: parameter.detach() for name, parameter in network.named_parameters()}
    means = {name: float(value) / client.local.steps for name, value in sums.items()}
    return Trained(client.finish(trained), means)


def train_step(
    network: Network,
    client: ClientHalf,
    optimizer: Optimizer,
    criterion: Criterion,
    images: Tensor,
    labels: Tensor,
    precision: str = "float32",
) -> dict[str, Tensor]:
    """Take one optimiser step on one mini-batch; return the weighted terms of the objective, detached."""
    device = next(network.parameters()).device
    images, labels = to_device(images, device), to_device(labels, device)
    terms = objective(network, client, criterion, images, labels, precision) | client.penalties()
    optimizer.zero_grad()
    torch.stack([*terms.values()]).sum().backward()  # type: ignore[no-untyped-call]
    client.after_backward()
    optimizer.step()
    return {name: term.detach() for name, term in terms.items()}


def objective(
    network: Callable[[Tensor], tuple[Tensor, Tensor]],
    client: ClientHalf,
    criterion: Criterion,
    images: Tensor,
    labels: Tensor,
    precision: str,
) -> dict[str, Tensor]:
    """Return the weighted terms of the objective that depend on the images, by name."""
    with autocast(images.device, precision):
        features, logits = network(images)
    exact_logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    classification = criterion(client.seen_logits(exact_logits), labels)
    return client.objective(Batch(images, labels, features, logits, classification))


@torch.no_grad()
def outputs(network: Network, batches: Batches) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the logits (n, C) and labels (n,) of a set, in its order, in one pass in evaluation mode."""
    _, logits, labels = every_output(network, batches, features=False)
    return logits, labels


@torch.no_grad()
def every_output(
    network: Network, batches: Batches, *, features: bool = True
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the features (n, d), or none (n, 0), the logits (n, C) and labels (n,), likewise."""
    # One array for all batches: small ones that stay would lie between the activations and keep the next batch from
    # using their memory again. Equal runs then peaked anywhere between 380 and 650 MB.
    count, size = len(batches.labels), network.feature_size if features else 0
    kept, logits = (np.empty((count, n), dtype=np.float32) for n in (size, network.classifier.out_features))
    done = 0
    for found, answers, labels in evaluated(network, batches, "evaluate", raw=True):
        logits[done : done + len(labels)] = answers.float().cpu().numpy()
        if features:
            kept[done : done + len(labels)] = found.float().cpu().numpy()
        done += len(labels)
    return kept, logits, batches.labels


@torch.no_grad()
def class_sums(
    network: Network,
    batches: Batches,
    num_classes: int,
    *,
    unit: bool = False,
    bound: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> ClassSums:
    """Return the per-class sums of features over a set, in one pass in evaluation mode.

    Args:
        unit: scale each feature to unit length first.
        bound: returns what of all features (n, d) with labels (n,) counts; None takes them as they are.
    """
    sums = ClassSums.zeros(num_classes, network.feature_size)
    made = ((F.normalize(f, dim=1) if unit else f, labels) for f, labels in features(network, batches, "prototypes"))
    if bound is not None:
        everything, labels = (torch.cat(part) for part in zip(*made, strict=True))
        return sums + ClassSums.from_features(bound(everything, labels), labels, num_classes)
    for batch, labels in made:
        sums = sums + ClassSums.from_features(batch, labels, num_classes)
    return sums


def features(network: Network, batches: Batches, stream: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features (B, d) and labels (B,) of a set on the CPU; see :func:`evaluated`."""
    for found, _, labels in evaluated(network, batches, stream):
        yield found.cpu(), labels


@torch.no_grad()
def evaluated(
    network: Network, batches: Batches, stream: str, *, raw: bool = False
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield features (B, d), logits (B, C) and labels (B,) of a set, in its order and in evaluation mode.

    Args:
        raw: whether features may be the raw input, as where they stay here.

    Raises:
        ConfigError: features are the raw input.
    """
    network.eval()
    device, checked = next(network.parameters()).device, raw
    for images, labels in batches.epoch(stream, shuffle=False):
        placed = to_device(images, device)
        if not checked:
            check_not_raw(network, placed)
            checked = True
        yield *network(placed), labels


def place(network: Network, device: torch.device) -> Network:
    """Move a network to a device; one without weights of 3-D convolutions in channels-last order."""
    network.to(device)
    if all(weight.ndim <= _IMAGE_DIMENSIONS for weight in network.parameters()):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def to_device(images: Tensor, device: torch.device) -> Tensor:
    """Move a batch to a device; images (4 dimensions, not volumes) channels last, which convolutions like best."""
    if images.ndim == _IMAGE_DIMENSIONS:
        return images.to(device, memory_format=torch.channels_last, non_blocking=True)
    return images.to(device, non_blocking=True)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return the context in which the forward pass runs."""
    automatic = device.type == "cuda" and torch.cuda.is_bf16_supported()
    enabled = precision == "bfloat16" or (precision == "auto" and automatic)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def endless(batches: Batches, stream: tuple[int | str, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of epoch after epoch, each in its own order."""
    for epoch in itertools.count():
        yield from batches.epoch(*stream, epoch, shuffle=True, drop_single=True)


@torch.no_grad()
def warn_if_modes_differ(network: Network, images: Tensor, *, site: str) -> None:
    """Say in the log where features of a batch are far longer in one mode than in the other.

    In training mode BatchNorm normalises by the batch, in evaluation mode by what it kept. Where the two differ, as
    with ImageNet's statistics on other pictures, prototypes and anchors, which are made in evaluation mode, are not
    where training puts the features. Neither the network nor the random numbers of the round are changed.
    """
    means = [buffer for name, buffer in network.named_buffers() if name.endswith("running_mean")]
    if len(images) < 2 or not any(bool(mean.any()) for mean in means):
        return  # no BatchNorm, or a new network, whose statistics no image has made
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    with torch.random.fork_rng():
        network.train()
        trained = float(network(images)[0].float().norm(dim=1).mean())
    for name, buffer in network.named_buffers():
        buffer.copy_(kept[name])
    network.eval()
    evaluated = float(network(images)[0].float().norm(dim=1).mean())
    if max(trained, evaluated) > FAR * min(trained, evaluated):
        _log.warning(
            "%s: features are %.3g long in training mode and %.3g in evaluation mode, as BatchNorm's statistics are of "
            "other images. See train.norm_statistics, or model.options.norm: group.",
            *(site, trained, evaluated),
        )
