"""A copy of a network that stays as it was while the network itself is trained."""

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedmr_med.network import Network

if TYPE_CHECKING:
    from fedmr_med.methods.local import Batch


class Frozen:
    """A network that neither learns nor updates its statistics, in evaluation mode.

    Attributes:
        network: the copy.
    """

    def __init__(self, network: Network):
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self._last: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    @torch.no_grad()
    def __call__(self, batch: "Batch") -> tuple[Tensor, Tensor]:
        """Return features (B, d) and logits (B, C) of a batch; asking again for the same batch costs nothing."""
        if self._last is None or self._last[0] is not batch.images:
            half = batch.logits.dtype == torch.bfloat16  # the trained network ran in mixed precision
            with torch.autocast(batch.images.device.type, dtype=torch.bfloat16, enabled=half):
                self._last = batch.images, self.network(batch.images)
        return self._last[1]
