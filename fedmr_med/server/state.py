"""What the server holds between two rounds."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedmr_med import methods, models
from fedmr_med.arrays import Arrays, weights_digest
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.history import History
from fedmr_med.models.job_network import backbone_of, build_network, whole_network
from fedmr_med.models.model_file import read_weights
from fedmr_med.prototypes import Prototypes
from fedmr_med.wire.half import pack, unpack
from fedmr_med.wire.messages import Backbone, TrainTask

WEIGHT, BIAS = "classifier.weight", "classifier.bias"
"""The arrays of a model that a closed-form head takes the place of."""


@dataclass(frozen=True)
class GlobalState:
    """Everything the server holds between two rounds.

    Attributes:
        model: weights and buffers by name.
        parameters: the names in ``model`` that are trained; the others are buffers.
        prototypes: the global prototypes.
        method: state of the method's server half.
        optimizer: state of the server's optimiser.
        averaged: parameters of the model that is scored and leaves, where a method goes on from another one; empty
            where it is the same.
        head: the closed-form classifier by the names of the model's arrays; empty where there is none.
        round: completed rounds of the chain.
        accepted: the last round, from 0, in which each site's reply counted.
        history: rounds and evaluations so far.
        backbone: the part of the network that is frozen; None where all of it is trained.
    """

    model: Arrays
    parameters: frozenset[str]
    prototypes: Prototypes
    method: Arrays
    optimizer: Arrays = field(default_factory=dict)
    averaged: Arrays = field(default_factory=dict)
    head: Arrays = field(default_factory=dict)
    round: int = 0
    accepted: dict[str, int] = field(default_factory=dict)
    history: History = field(default_factory=History)
    backbone: Backbone | None = None

    def defect(self) -> str | None:
        """Say what of the arrays is not finite or cannot be; None if all is well."""
        prototypes = {"prototypes": self.prototypes.means.numpy()}
        parts = (self.model, self.method, self.optimizer, self.averaged, self.head, prototypes)
        for name, array in (item for part in parts for item in part.items()):
            if array.dtype.kind == "f" and not np.isfinite(array.sum(dtype=np.float64)):
                return f"NaN or infinite values in {name!r}"
            if name.endswith("running_var") and (array < 0).any():
                return f"a negative variance in {name!r}"
        return None

    @property
    def whole_model(self) -> Arrays:
        """The model with the frozen part of the network, as it is used outside the federation."""
        return self.model if self.backbone is None else self.backbone.arrays | self.model

    def leaving(self) -> "GlobalState":
        """Return the state with the model that is scored and leaves."""
        return replace(self, model={**self.model, **self.averaged}, averaged={}) if self.averaged else self

    def with_head(self) -> "GlobalState":
        """Return the state with the closed-form head in its model, for scoring and for what leaves; never to train."""
        leaving = self.leaving()
        return replace(leaving, model={**leaving.model, **self.head})


def initial_state(job: JobConfig, initial_model: Path | None = None) -> GlobalState:
    """Return the global state before the first round: the seeded or pretrained model, no prototypes.

    ``initial_model`` is a file with other weights to start from: a model file, or a state dict that torch saved.

    Raises:
        CheckpointError: that file cannot be read, belongs to another model, or has values that are not finite.
    """
    network, backbone = build_network(job, pretrained=True), backbone_of(job)
    if initial_model is not None:
        weights = read_weights(initial_model)
        if backbone is not None:
            models.load_arrays(whole_network(job), weights)  # or it belongs to another model
            backbone = Backbone.of({name: weights[name] for name in backbone.arrays})
            weights = {name: array for name, array in weights.items() if name not in backbone.arrays}
        models.load_arrays(network, weights)
    model, parameters = models.state_arrays(network), models.parameter_names(network)
    server = methods.build(job.method).server()
    state = GlobalState(
        model=model,
        parameters=parameters,
        prototypes=Prototypes.none(job.task.num_classes, network.feature_size),
        method=server.initial_state({name: array for name, array in model.items() if name in parameters}),
        backbone=backbone,
    )
    if initial_model is not None and (defect := replace(state, model=state.whole_model).defect()):
        raise CheckpointError(f"{initial_model} has {defect}.", code="file.damaged")
    return state


def weights_sent(state: GlobalState, job: JobConfig) -> str:
    """Return the SHA-256 of a state's weights as sites receive them: half precision rounds."""
    model = unpack(*pack(state.model, job.federation.halved(state.parameters)))
    return weights_digest(model if state.backbone is None else state.backbone.arrays | model)


def with_weights(job: JobConfig, initial_model: Path) -> JobConfig:
    """Return the job that names the weights of a file as those it starts from.

    Raises:
        CheckpointError: the file cannot be read, or belongs to another model.
    """
    named = weights_sent(initial_state(job, initial_model), job)
    return job.model_copy(update={"model": job.model.model_copy(update={"weights": named})})


def train_task(state: GlobalState, job: JobConfig, chain: str, sites: Collection[str] | None = None) -> TrainTask:
    """Return what every site receives in the round that starts from ``state``.

    Args:
        chain: id of the chain, under which a site keeps its own state.
        sites: who receives it; None means sites of which nothing is known, as after a restart.
    """
    backbone = state.backbone
    if backbone is not None and sites is not None and _have_features(state, sites):
        backbone = backbone.named()
    return TrainTask(
        model=state.model,
        prototypes=state.prototypes,
        method=methods.build(job.method).server().client_view(state.method),
        round=state.round,
        rounds=job.federation.rounds,
        chain=chain,
        averaged=state.averaged,
        settings=job.digest(),
        accepted=state.accepted,
        backbone=backbone,
    )


def _have_features(state: GlobalState, sites: Collection[str]) -> bool:
    """Whether all of the sites have answered with the frozen part, and so have made their features.

    A site that lost them is refused, and receives the frozen part again in the round after.
    """
    last: dict[str, bool] = {}
    for record in state.history.rounds:
        last |= dict.fromkeys(record.sites, True) | dict.fromkeys(record.refused, False)
    return all(last.get(site, False) for site in sites)
