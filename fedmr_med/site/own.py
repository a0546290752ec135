"""What a site keeps of the model for itself: BatchNorm layers, and prototypes of the classes that it does not share."""

from pathlib import Path

from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.models.norm import batch_norm_names
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.site.client_state import ClientStateStore


class OwnLayers:
    """A site's own layers in a received model (FedBN): none unless ``federation.buffers`` is ``local``.

    Args:
        folder: one per chain.
    """

    def __init__(self, folder: Path, job: JobConfig, received: Arrays):
        self._store = ClientStateStore(folder)
        self._received = received
        self._names = batch_norm_names(received) if job.federation.buffers == "local" else frozenset()

    def load(self, accepted: int | None, parameters: Arrays | None = None) -> Arrays:
        """Return the received model with the layers that this site kept after its last accepted round.

        Args:
            accepted: that round; None for never.
            parameters: others in the place of the received ones.

        Raises:
            CheckpointError: they are missing or cannot be read.
        """
        model = self._received | (parameters or {})
        return model | self._store.load(accepted) if self._names else model

    def save(self, round_number: int, trained: Arrays, accepted: int | None) -> None:
        """Keep the layers of a trained model."""
        if self._names:
            self._store.save(round_number, {name: trained[name] for name in self._names}, accepted)

    def shared(self, trained: Arrays) -> Arrays:
        """Return the trained model as it leaves: its own layers are those that came."""
        return trained | {name: self._received[name] for name in self._names}


class OwnPrototypes:
    """Prototypes that a site keeps for itself, moving as slowly as the global ones.

    A site that opted out trains towards them where no global prototype came, as it would towards a global one.

    Args:
        folder: one per chain.
        inertia: share of the old prototype that stays in a round.
    """

    def __init__(self, folder: Path, *, inertia: float, num_classes: int, feature_size: int):
        self._store = ClientStateStore(folder)
        self._inertia = inertia
        self._kept = Prototypes.none(num_classes, feature_size)

    def load(self, accepted: int | None) -> Prototypes:
        """Return what is kept after the accepted round; none where nothing is, as after a change of the policy."""
        try:
            content = self._store.load(accepted)
        except CheckpointError:
            content = {}
        if content:
            self._kept = Prototypes.from_arrays(content)
        return self._kept

    def save(self, round_number: int, sums: ClassSums, accepted: int | None) -> None:
        """Move the prototypes to the class sums of a round and keep them."""
        new = self._kept.updated(sums, inertia=self._inertia)
        self._store.save(round_number, new.arrays(), accepted)
