"""The server's optimiser: FedAvgM, FedAdam, FedYogi and FedAdagrad on top of any method."""

import numpy as np

from fedmr_med.arrays import Arrays
from fedmr_med.config import ServerConfig
from fedmr_med.methods.vectors import with_prefix, without_prefix

FIRST, SECOND = "first", "second"


def server_step(config: ServerConfig, before: Arrays, after: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    """Return the new global parameters and the optimiser's new state; see the settings for the formulas.

    Args:
        before: the parameters the round started from.
        after: the parameters that the method made of the round.
        state: the optimiser's state; empty before the first round.
    """
    if config.optimizer == "average":
        return after, {}
    delta = {name: after[name] - array for name, array in before.items()}
    first = _first_moment(config, delta, without_prefix(FIRST, state))
    kept = with_prefix(FIRST, first)
    if config.optimizer == "sgd":
        moved = {name: config.lr * array for name, array in first.items()}
    else:
        second = _second_moment(config, delta, without_prefix(SECOND, state))
        kept |= with_prefix(SECOND, second)
        moved = {name: config.lr * array / (np.sqrt(second[name]) + config.eps) for name, array in first.items()}
    return {name: (array + moved[name]).astype(array.dtype) for name, array in before.items()}, kept


def _first_moment(config: ServerConfig, delta: Arrays, first: Arrays) -> Arrays:
    old, new = (config.momentum, 1.0) if config.optimizer == "sgd" else (config.betas[0], 1 - config.betas[0])
    if not first:
        return {name: (new * array).astype(array.dtype) for name, array in delta.items()}
    return {name: (old * first[name] + new * array).astype(array.dtype) for name, array in delta.items()}


def _second_moment(config: ServerConfig, delta: Arrays, second: Arrays) -> Arrays:
    start = config.eps**2
    moments = {}
    for name, array in delta.items():
        square = np.square(array)
        before = second[name] if second else np.full_like(square, start)
        if config.optimizer == "adagrad":
            moment = before + square
        elif config.optimizer == "yogi":
            moment = before - (1 - config.betas[1]) * square * np.sign(before - square)
        else:
            moment = config.betas[1] * before + (1 - config.betas[1]) * square
        moments[name] = moment.astype(array.dtype)
    return moments
