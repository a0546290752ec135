"""What the server holds between two rounds."""

from dataclasses import dataclass, field, replace

from fedmr_med.arrays import Arrays
from fedmr_med.prototypes import Prototypes
from fedmr_med.results import History


@dataclass(frozen=True)
class GlobalState:
    """Everything the server holds between two rounds.

    Attributes:
        model: weights and buffers by name.
        parameters: the names in ``model`` that are trained; the others are buffers.
        prototypes: the global prototypes.
        method: state of the method's server half.
        round: completed rounds of the chain.
        accepted: the last round, from 0, in which each site's reply counted.
        history: rounds and evaluations so far.
    """

    model: Arrays
    parameters: frozenset[str]
    prototypes: Prototypes
    method: Arrays
    round: int = 0
    accepted: dict[str, int] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def scored(self, history: History) -> "GlobalState":
        """Return the same state with another history."""
        return replace(self, history=history)
