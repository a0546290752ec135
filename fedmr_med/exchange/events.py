"""What happens while a plan is run, for whoever listens: a log, a progress bar, FLARE's other components."""

from dataclasses import dataclass

from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.plan import Step
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.messages import SiteReply


@dataclass(frozen=True)
class Asked:
    """Sites are about to be asked."""

    exchange: Exchange


@dataclass(frozen=True)
class Replied:
    """A reply to a training task counts."""

    reply: SiteReply


@dataclass(frozen=True)
class Refused:
    """An answer does not count.

    Attributes:
        kind: of the message.
        site: who sent it.
        reason: a sentence without its subject.
    """

    kind: str
    site: str
    reason: str


@dataclass(frozen=True)
class Kept:
    """A step is done, and its result safe on disk."""

    step: Step
    state: GlobalState


@dataclass(frozen=True)
class RoundDone:
    """A training round is over, with all that belongs to it."""

    state: GlobalState


Event = Asked | Replied | Refused | Kept | RoundDone
