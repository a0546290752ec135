"""The prototype-aware aggregator: refuses bad replies whole, adds up the others in a fixed order."""

import threading
import time

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.aggregator import Aggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fedmr_med import faults, methods
from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.flare import context
from fedmr_med.flare.generator import from_learnable, wrap_state
from fedmr_med.methods import Method
from fedmr_med.report.lines import refused_line, site_line
from fedmr_med.server.aggregation import RoundAggregation
from fedmr_med.server.state import GlobalState
from fedmr_med.wire import codec as wire
from fedmr_med.wire.messages import SiteReply


class PrototypeAggregator(Aggregator):
    """Holds the replies of a round until it closes, then adds them up by site name.

    So the result does not depend on who answered first. A site that shares no prototypes is absent from their
    mean and counts in the model like any other.

    Args:
        job: the job; None reads it from the job's folder when the run starts.
        in_order: whether the replies of a round come in the order of the site names. Then each is added at
            once and none is held.
    """

    def __init__(self, job: JobConfig | None = None, *, in_order: bool = False):
        super().__init__()
        self._in_order = in_order
        self._lock = threading.Lock()
        self._replies: dict[str, SiteReply] = {}
        self._refused: dict[str, str] = {}
        self._round: RoundAggregation | None = None
        self._started = 0.0
        self._num_sites = 0
        self._job: JobConfig
        self._method: Method
        if job is not None:
            self._set_job(job)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Read the job at the start of the run, and open each round."""
        if event_type == EventType.START_RUN:
            self._set_job(context.server_job(fl_ctx))
        elif event_type == AppEventType.ROUND_STARTED:
            state = from_learnable(fl_ctx.get_prop(AppConstants.GLOBAL_MODEL))
            # FLARE forgets a hospital that died; FedDyn and FedDC still count what it contributed.
            sites = {client.name for client in fl_ctx.get_engine().get_clients()} | state.accepted.keys()
            self.open_round(state, num_sites=len(sites))

    def open_round(self, state: GlobalState, *, num_sites: int) -> None:
        """Start collecting replies to ``state`` from a federation of ``num_sites``, whether or not all are asked."""
        with self._lock:
            self._round = RoundAggregation(self._job, self._method, state)
            self._replies, self._refused = {}, {}
            self._started = time.monotonic()
            self._num_sites = num_sites

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Take a reply if all of it is in order; otherwise refuse it with a reason in the log. Never raises."""
        site = fl_ctx.get_peer_context().get_identity_name()
        with self._lock:
            try:
                reply = self._checked(shareable, site)
            except WireError as e:
                self.refuse(site, str(e).removeprefix(f"{site}: "), fl_ctx)
                return False
            except Exception as e:
                # FLARE's contract: accept() never raises. Whatever it was, nothing of the reply was used.
                self._refused.setdefault(site, f"the reply could not be read ({type(e).__name__})")
                self.log_exception(fl_ctx, refused_line(site, repr(e)), fire_event=False)
                return False
            self._replies[site] = reply
            if self._in_order:
                self._add_replies()
        self.log_info(fl_ctx, site_line(reply, self._job), fire_event=False)
        return True

    def refuse(self, site: str, reason: str, fl_ctx: FLContext) -> None:
        """Put down that a site's reply of the open round does not count."""
        self._refused.setdefault(site, reason)
        self.log_warning(fl_ctx, refused_line(site, reason), fire_event=False)

    def aggregate(self, fl_ctx: FLContext) -> Shareable:
        """Return the new global state; the old one, and an end to the job, if too few replies were usable."""
        with self._lock:
            assert self._round is not None
            needed = self._job.federation.min_sites
            usable = len(self._replies) + len(self._round.sites)
            if usable < needed:
                self.system_panic(
                    f"Round {self._round.state.round + 1} has {usable} usable replies, "
                    f"federation.min_sites asks for {needed}. Refused: {self._refused or 'none'}.",
                    fl_ctx,
                )
                return wrap_state(self._round.state)
            self._add_replies()
            faults.reach(f"aggregate-{self._round.state.round + 1}")
            state = self._round.finish(self._num_sites, self._refused, time.monotonic() - self._started)
        return wrap_state(state)

    def standing(self) -> tuple[list[str], dict[str, str]]:
        """Return whose replies of the open round count so far, and whose were refused, with the reason."""
        with self._lock:
            counted = set(self._replies) | set(self._round.sites if self._round else ())
            return sorted(counted), dict(self._refused)

    def _checked(self, shareable: Shareable, site: str) -> SiteReply:
        assert self._round is not None
        classes, size = self._round.state.prototypes.means.shape
        reply = wire.decode_reply(shareable, site, num_classes=classes, feature_size=size)
        if site in self._replies:
            raise WireError("a second reply in the same round")
        if self._in_order and any(site < earlier for earlier in self._round.sites):
            raise WireError("the reply came out of the order of the site names")
        self._round.check(reply)
        return reply

    def _add_replies(self) -> None:
        assert self._round is not None
        self._round.add(*(self._replies[site] for site in sorted(self._replies)))
        self._replies = {}

    def _set_job(self, job: JobConfig) -> None:
        self._job = job
        self._method = methods.build(job.method)
