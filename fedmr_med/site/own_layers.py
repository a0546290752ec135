"""The BatchNorm layers that stay at a site, with ``federation.buffers: local`` (FedBN)."""

from pathlib import Path

from fedmr_med.arrays import Arrays
from fedmr_med.config import JobConfig
from fedmr_med.models.norm import batch_norm_names
from fedmr_med.site.client_state import ClientStateStore


class OwnLayers:
    """A site's own layers in a received model; there are none unless the job says so.

    Args:
        folder: one per chain.
        job: the job's settings.
        received: the global model.
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
