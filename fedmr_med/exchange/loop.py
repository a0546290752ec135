"""The one loop: asks the sites what a plan says, whatever carries the messages."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedmr_med.errors import FedMRError, WireError
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import SecureTotals, Total
from fedmr_med.exchange.events import Asked, Event, Kept, Refused, Replied, RoundDone
from fedmr_med.exchange.head import HeadExchange
from fedmr_med.exchange.joining import JoinExchange, kept_of_others
from fedmr_med.exchange.leaving import take_out
from fedmr_med.exchange.plan import Step, draw_sites, due
from fedmr_med.exchange.survey import SurveyExchange
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.exchange.transport import SERVER, Answer, Transport
from fedmr_med.exchange.validate import ValidateExchange
from fedmr_med.server.chain import Chain
from fedmr_med.server.state import GlobalState, train_task
from fedmr_med.wire.codec import Message, decode_task, encode_task
from fedmr_med.wire.kinds import HEAD, SECURE, SURVEY, TRAIN
from fedmr_med.wire.messages import TrainTask


def run(
    plan: Sequence[Step],
    state: GlobalState,
    transport: Transport,
    chain: Chain,
    on_event: Callable[[Event], None] = lambda event: None,
) -> GlobalState:
    """Do the steps of a plan that are not done yet from the chain's state, and return the last state.

    Raises:
        Stopped: the job was ended; what was reached is on disk.
        FedMRError: an exchange failed, such as a round with too few usable replies.
    """
    server = Server(plan, state, transport, chain, on_event)
    while (task := server.next_task()) is not None:
        for site, answer in transport.ask(task.kind, task.message, task.sites, server.has_quorum):
            server.offer(site, answer)
        server.close()
    return server.state


@dataclass(frozen=True)
class Task:
    """What to ask, and whom.

    Attributes:
        kind: one of :mod:`fedmr_med.wire.kinds`.
        message: what every site receives.
        sites: who is asked.
    """

    kind: str
    message: Message
    sites: Sequence[str]


class Server:
    """The server's side of a job: says what to ask next, takes the answers, and closes the step.

    :func:`run` drives it. It does not wait for sites and knows no clock, so whoever brings questions and answers in
    another way can drive it as well. Of its transport it asks for the sites and the steps of secure sums alone.

    It begins with taking out the sites that leave the chain.

    Attributes:
        state: the last state that is on disk.

    Raises:
        FedMRError: a site cannot be taken out.
    """

    def __init__(
        self,
        plan: Sequence[Step],
        state: GlobalState,
        transport: Transport,
        chain: Chain,
        on_event: Callable[[Event], None] = lambda event: None,
    ):
        self.state = take_out(state, transport, chain)
        self._steps = deque(plan)
        self._chain, self._job = chain, chain.job
        self._transport, self._on_event = transport, on_event
        self._totals = SecureTotals(self._job, chain.id, self._ask_secure)
        self._asked = self._in_round = False
        self._open: tuple[Step, Exchange, TrainTask] | None = None

    def next_task(self) -> Task | None:
        """Begin the next step that is due, and return what to ask for it; None when the plan is done."""
        while self._steps and not due(self._steps[0], self._job, self.state):
            self._steps.popleft()
            self._end_round()
        if not self._steps:
            return None
        step = self._steps.popleft()
        sites = self._sites(step.kind)
        exchange = self._exchange(step, sites)
        if isinstance(exchange, JoinExchange):
            sites = [exchange.joins]
        if step.kind == TRAIN:
            self._in_round = True
            drawn = self._job.federation.sites_per_round
            sites = draw_sites(sites, drawn, seed=self._job.seed, round_number=self.state.round)
        self._on_event(Asked(exchange))
        # The model that is scored in the place of the trained one goes to those alone who score it.
        sent = exchange.sent if step.sites_score else replace(exchange.sent, averaged={})
        task, message = self._task(sent, sites)
        self._open = step, exchange, task
        return Task(step.kind, message, sites)

    def offer(self, site: str, answer: Answer) -> None:
        """Take a site's answer to the open step; one that is of no use does not count, and the step goes on."""
        _, exchange, _ = self._opened()
        try:
            if isinstance(answer, WireError):
                raise answer
            reply = exchange.offer(site, answer)
        except WireError as e:
            exchange.refuse(site, str(e))
            self._on_event(Refused(exchange.kind, site, str(e)))
            return
        if exchange.kind == TRAIN:
            self._on_event(Replied(reply))

    def has_quorum(self) -> bool:
        """Whether the open step has enough usable answers."""
        return self._opened()[1].has_quorum

    def close(self) -> GlobalState:
        """Close the open step with the answers so far, and return the new state, which is on disk.

        Raises:
            Stopped: the job was ended during a secure sum.
            FedMRError: the step failed.
        """
        step, exchange, task = self._opened()
        answered, refused = exchange.status()
        only = not self._job.federation.rounds and not self.state.history.left
        if refused and not answered and only:  # there is nothing else in such a job
            reasons = "; ".join(f"{site}: {reason}" for site, reason in sorted(refused.items()))
            raise FedMRError(f"No site answered {step.kind}. Refused: {reasons}.", code="exchange.no-answer")
        total = self._total(exchange, task, answered)
        if total is not None and step.kind != TRAIN:
            total.check()
        new = exchange.close(total)
        if isinstance(exchange, HeadExchange) and self._job.head.keep:
            new = self._chain.keep_head(new, exchange.kept(total))
        if step.kind == TRAIN:
            for site, reason in new.history.rounds[-1].refused.items():
                if site not in refused:  # left out when the round was closed
                    self._on_event(Refused(TRAIN, site, reason))
        self._chain.save(new)
        self.state, self._open = new, None
        self._on_event(Kept(step, new))
        self._end_round()
        return new

    def _opened(self) -> tuple[Step, Exchange, TrainTask]:
        if self._open is None:
            raise RuntimeError("no step is open: next_task() begins one")
        return self._open

    def _end_round(self) -> None:
        """Say that a training round is over, when what follows belongs to another one."""
        if self._in_round and (not self._steps or self._steps[0].kind == TRAIN):
            self._in_round = False
            self._on_event(RoundDone(self.state))

    def _sites(self, kind: str) -> list[str]:
        """Return who can be asked: nobody who left the chain, whoever is connected."""
        return [site for site in self._transport.sites(kind) if site not in self.state.history.left]

    def _exchange(self, step: Step, sites: Sequence[str]) -> Exchange:
        if step.kind == HEAD and self._job.head.extends is not None:
            extends = self._job.head.extends
            return JoinExchange(self._job, self.state, extends, kept_of_others(self._chain, self.state, extends))
        if step.kind == HEAD:
            return HeadExchange(self._job, self.state)
        if step.kind == SURVEY:
            return SurveyExchange(self._job, self.state)
        if step.kind != TRAIN:
            return ValidateExchange(self._job, self.state, head=self.state.history.head if step.of_head else None)
        # A transport may forget a site that died; FedDyn and FedDC still count what it contributed.
        known = len({*sites, *self.state.accepted})
        return TrainExchange(self._job, self.state, num_sites=known, in_order=self._transport.in_order)

    def _total(self, exchange: Exchange, task: TrainTask, answered: Sequence[str]) -> Total | None:
        """Add up securely what the sites hold, where the job asks for it and enough of them answered."""
        sites = self._sites(exchange.kind)
        if not self._job.federation.sums_statistics or (exchange.kind == TRAIN and not exchange.has_quorum):
            return None
        if sites == [SERVER]:  # its own test set: nobody's values to hide among others'
            return None
        known = {*sites, *self.state.accepted} - self.state.history.left
        return self._totals.total(task.release(exchange.kind), answered, known)

    def _ask_secure(self, question: Message, sites: Sequence[str], enough: int) -> dict[str, Answer]:
        """Bring a step of a secure sum to sites; one that gives no answer of use has dropped out."""
        answers: dict[str, Answer] = {}
        usable: set[str] = set()
        for site, answer in self._transport.ask(SECURE, question, sites, lambda: len(usable) >= enough):
            answers[site] = answer
            if isinstance(answer, WireError):
                self._on_event(Refused(SECURE, site, str(answer)))
            else:
                usable.add(site)
        return answers

    def _task(self, sent: GlobalState, sites: Sequence[str]) -> tuple[TrainTask, Message]:
        """Return what every site receives, as it decodes it (half precision rounds), and the message."""
        known = sites if self._asked else None  # sites may have lost what they kept since the last job of the chain
        self._asked = True
        task = train_task(sent, self._job, self._chain.id, known)
        message = encode_task(task, halved=self._job.federation.halved(sent.parameters))
        return (decode_task(message) if self._job.federation.wire == "float16" else task), message
