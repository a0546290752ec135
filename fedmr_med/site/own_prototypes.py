"""A site's own prototypes of the classes that it does not share: they never leave it."""

from pathlib import Path

import torch

from fedmr_med.errors import CheckpointError
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.site.client_state import ClientStateStore


class OwnPrototypes:
    """Prototypes that a site keeps for itself, moving as slowly as the global ones.

    A site that opted out trains towards them where no global prototype came, as it would towards a global one.

    Args:
        folder: one per chain.
        inertia: share of the old prototype that stays in a round.
        num_classes, feature_size: C and d.
    """

    def __init__(self, folder: Path, *, inertia: float, num_classes: int, feature_size: int):
        self._store = ClientStateStore(folder)
        self._inertia = inertia
        self._none = Prototypes.none(num_classes, feature_size)
        self._kept = self._none

    def load(self, accepted: int | None) -> Prototypes:
        """Return what is kept after the accepted round; none where nothing is, as after a change of the policy."""
        try:
            content = self._store.load(accepted)
        except CheckpointError:
            content = {}
        if content:
            self._kept = Prototypes(*(torch.from_numpy(content[name]) for name in ("means", "available", "age")))
        return self._kept

    def save(self, round_number: int, sums: ClassSums, accepted: int | None) -> None:
        """Move the prototypes to the class sums of a round and keep them."""
        new = self._kept.updated(sums, inertia=self._inertia)
        arrays = {"means": new.means.numpy(), "available": new.available.numpy(), "age": new.age.numpy()}
        self._store.save(round_number, arrays, accepted)
