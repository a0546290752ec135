"""The one loop: asks the sites what a plan says, whatever carries the messages."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedmr_med.errors import WireError
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import SecureTotals, Total
from fedmr_med.exchange.events import Asked, Event, Kept, Refused, Replied, RoundDone
from fedmr_med.exchange.head import HeadExchange
from fedmr_med.exchange.plan import Step
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.exchange.transport import Transport
from fedmr_med.exchange.validate import ValidateExchange
from fedmr_med.server.chain import Chain
from fedmr_med.server.sampling import draw_sites
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.wire.codec import Message, decode_task, encode_task
from fedmr_med.wire.kinds import HEAD, SECURE, TRAIN
from fedmr_med.wire.messages import TrainTask


def run(
    plan: Sequence[Step],
    state: GlobalState,
    transport: Transport,
    chain: Chain,
    on_event: Callable[[Event], None] = lambda event: None,
) -> GlobalState:
    """Do the steps of a plan that are not done yet, and return the last state.

    Args:
        plan: see :func:`fedmr_med.exchange.plan.plan`.
        state: the chain's state.
        transport: carries the messages.
        chain: keeps every state.
        on_event: hears what happens.

    Raises:
        Stopped: the job was ended; what was reached is on disk.
        FedMRError: an exchange failed, such as a round with too few usable replies.
    """
    server = Server(chain, transport, on_event)
    in_round = False
    for step, following in zip(plan, [*plan[1:], None], strict=True):
        if step.due(chain.job, state):
            in_round = in_round or step.kind == TRAIN
            state = server.do(step, state)
        if in_round and (following is None or following.kind == TRAIN):
            on_event(RoundDone(state))
            in_round = False
    return state


class Server:
    """Does one step after the other, and keeps what came out.

    Args:
        chain: the job and its files.
        transport: carries the messages.
        on_event: hears what happens.
    """

    def __init__(self, chain: Chain, transport: Transport, on_event: Callable[[Event], None]):
        self._chain, self._job = chain, chain.job
        self._transport, self._on_event = transport, on_event
        self._totals = SecureTotals(self._job, chain.id, self._ask_secure)
        self._asked = False

    def do(self, step: Step, state: GlobalState) -> GlobalState:
        """Ask the sites for one step and return the new state, which is on disk.

        Raises:
            Stopped: the job was ended.
            FedMRError: the step failed.
        """
        sites = self._transport.sites(step.kind)
        exchange = self._open(step, state, sites)
        if step.kind == TRAIN:
            drawn = self._job.federation.sites_per_round
            sites = draw_sites(sites, drawn, seed=self._job.seed, round_number=state.round)
        self._on_event(Asked(exchange))
        # The model that is scored in the place of the trained one goes to those alone who score it.
        sent = exchange.sent if step.sites_score else replace(exchange.sent, averaged={})
        task, message = self._task(sent, sites)
        self._collect(exchange, message, sites)
        answered, refused = exchange.standing()
        new = exchange.close(self._total(exchange, task, answered))
        if step.kind == TRAIN:
            for site, reason in new.history.rounds[-1].refused.items():
                if site not in refused:  # left out when the round was closed
                    self._on_event(Refused(TRAIN, site, reason))
        self._chain.save(new)
        self._on_event(Kept(step, new))
        return new

    def _open(self, step: Step, state: GlobalState, sites: Sequence[str]) -> Exchange:
        if step.kind == HEAD:
            return HeadExchange(self._job, state)
        if step.kind != TRAIN:
            return ValidateExchange(self._job, state, of_head=step.of_head)
        # A transport may forget a site that died; FedDyn and FedDC still count what it contributed.
        known = len({*sites, *state.accepted})
        return TrainExchange(self._job, state, num_sites=known, in_order=self._transport.in_order)

    def _collect(self, exchange: Exchange, message: Message, sites: Sequence[str]) -> None:
        """Let the exchange have the sites' answers."""
        for site, answer in self._transport.ask(exchange.kind, message, sites, lambda: exchange.has_quorum):
            try:
                if isinstance(answer, WireError):
                    raise answer
                reply = exchange.offer(site, answer)
            except WireError as e:
                exchange.refuse(site, str(e))
                self._on_event(Refused(exchange.kind, site, str(e)))
                continue
            if reply is not None:
                self._on_event(Replied(reply))

    def _total(self, exchange: Exchange, task: TrainTask, answered: Sequence[str]) -> Total | None:
        """Add up securely what the sites hold, where the job asks for it and enough of them answered."""
        if not self._job.federation.sums_statistics or (exchange.kind == TRAIN and not exchange.has_quorum):
            return None
        return self._totals.total(task.release(exchange.kind), answered)

    def _ask_secure(self, question: Message, sites: Sequence[str], enough: int) -> dict[str, Message]:
        """Bring a step of a secure sum to sites; one that gives no answer of use has dropped out."""
        answers: dict[str, Message] = {}
        for site, answer in self._transport.ask(SECURE, question, sites, lambda: len(answers) >= enough):
            if isinstance(answer, WireError):
                self._on_event(Refused(SECURE, site, str(answer)))
            else:
                answers[site] = answer
        return answers

    def _task(self, sent: GlobalState, sites: Sequence[str]) -> tuple[TrainTask, Message]:
        """Return what every site receives, as it decodes it (half precision rounds), and the message."""
        known = sites if self._asked else None  # sites may have lost what they kept since the last job of the chain
        self._asked = True
        task = train_task(sent, self._job, self._chain.id, known)
        message = encode_task(task, halved=self._job.federation.halved(sent.parameters))
        return (decode_task(message) if self._job.federation.wire == "float16" else task), message
