"""SGD and Adam for one local round, with torch's update rules.

``torch.optim`` imports torch's compiler as soon as an optimiser is made: 800 modules, 1.7 s and 70 MB in every
client process, which in the simulator lives for a single task. Nothing of it is used here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from fedmr_med.config import TrainConfig
from fedmr_med.registry import Registry


class Optimizer(ABC):
    """Updates parameters in place from their gradients; made afresh for every round."""

    def __init__(self, parameters: Iterable[Tensor], config: TrainConfig):
        self.parameters = list(parameters)
        self.config = config
        self.steps = 0

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.steps += 1
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                gradient = parameter.grad.add(parameter, alpha=self.config.weight_decay)
                self._update(index, parameter, gradient)

    @abstractmethod
    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> None:
        """Update one parameter from its gradient, weight decay included; ``gradient`` may be kept."""


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: v = momentum * v + g; w -= lr * v."""

    def __init__(self, parameters: Iterable[Tensor], config: TrainConfig):
        super().__init__(parameters, config)
        self.velocity: dict[int, Tensor] = {}

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> None:
        if index in self.velocity:
            self.velocity[index].mul_(self.config.momentum).add_(gradient)
        else:
            self.velocity[index] = gradient
        parameter.add_(self.velocity[index], alpha=-self.config.lr)


class Adam(Optimizer):
    """Adam (Kingma & Ba, 2015) with torch's defaults: betas (0.9, 0.999), epsilon 1e-8."""

    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, parameters: Iterable[Tensor], config: TrainConfig):
        super().__init__(parameters, config)
        self.moments: dict[int, tuple[Tensor, Tensor]] = {}

    def _update(self, index: int, parameter: Tensor, gradient: Tensor) -> None:
        if index not in self.moments:
            self.moments[index] = (torch.zeros_like(parameter), torch.zeros_like(parameter))
        mean, square = self.moments[index]
        mean.lerp_(gradient, 1 - self.BETA1)
        square.mul_(self.BETA2).addcmul_(gradient, gradient, value=1 - self.BETA2)
        scale = (1 - self.BETA2**self.steps) ** 0.5
        denominator = (square.sqrt() / scale).add_(self.EPSILON)
        parameter.addcdiv_(mean, denominator, value=-self.config.lr / (1 - self.BETA1**self.steps))


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimiser")
OPTIMIZERS.add("sgd", SGD)
OPTIMIZERS.add("adam", Adam)


def build(parameters: Iterable[Tensor], config: TrainConfig) -> Optimizer:
    """Return the optimiser a job asks for.

    Raises:
        ConfigError: there is none of that name.
    """
    return OPTIMIZERS.get(config.optimizer, "train.optimizer")(parameters, config)
