"""What people see of a run while it goes on: log lines, FLARE's events and metrics, the answer to ``deploy watch``."""

from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.history import History
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.events import Asked, Event, Kept, Refused, Replied
from fedmr_med.exchange.plan import Step
from fedmr_med.flare import context
from fedmr_med.flare.tracking import figures, track, track_pooled, write_metrics
from fedmr_med.flare.transport import FlareTransport
from fedmr_med.report.lines import refused_line, round_line, runaway_line, score_text, seconds_left, site_line
from fedmr_med.server.chain import Chain
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.kinds import HEAD, SECURE, SURVEY, TRAIN, VALIDATE

_NO_PART = {
    VALIDATE: "did not score the model",
    HEAD: "has no part in the closed-form head",
    SURVEY: "has no part in the survey",
    SECURE: "takes no part in a secure sum",
}


def past_rounds(history: History) -> list[dict[str, Any]]:
    """Return number, seconds, sites, refused sites and pooled mean recall of each finished round.

    Whoever may view the server sees it, so it has no score of a single site.
    """
    pooled = {evaluation.round: evaluation.pooled for evaluation in history.evaluations}
    return [
        {
            "round": record.round,
            "seconds": record.seconds,
            "sites": sorted(record.sites),
            "refused": dict(record.refused),
            "score": score.mean_recall if (score := pooled.get(record.round)) else None,
        }
        for record in history.rounds
    ]


class Progress:
    """Hears what happens in the loop, and passes it on to FLARE and to people.

    The transport knows what is asked, and who has answered; ``state`` is what the run begins with.
    """

    def __init__(
        self,
        controller: Controller,
        job: JobConfig,
        chain: Chain,
        state: GlobalState,
        transport: FlareTransport,
        fl_ctx: FLContext,
    ):
        self._controller, self._fl_ctx = controller, fl_ctx
        self._job, self._chain, self._state, self._transport = job, chain, state, transport
        self._exchange: Exchange | None = None
        self._lines: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        """Log what happens, and tell FLARE's other components."""
        match event:
            case Asked(exchange):
                self._exchange = exchange
                if exchange.kind == TRAIN:
                    round_number = exchange.state.round
                    self._fl_ctx.set_prop(AppConstants.CURRENT_ROUND, round_number, private=True, sticky=True)
                    self._controller.fire_event(AppEventType.ROUND_STARTED, self._fl_ctx)
            case Replied(reply):
                self._say(reply.site, reply.round, site_line(reply, self._job))
                track(self._controller, figures(reply), reply.round, self._fl_ctx, site=reply.site)
            case Refused(kind, site, reason):
                line = refused_line(site, reason) if kind == TRAIN else f"{site} {_NO_PART[kind]}: {reason}"
                self._say(site, self._state.round, line, warn=True)
            case Kept(step, state):
                self._note(step, state)

    def values(self) -> dict[str, Any] | None:
        """Return what is asked, round, sites in and out, metric, time left and past rounds; None before anything is."""
        state, transport, rounds = self._state, self._transport, self._job.federation.rounds
        if not transport.asked:
            return None
        answered, refused = sorted(transport.answered), dict[str, str]()
        left = state.history.left if self._exchange is None else self._exchange.state.history.left
        if self._exchange is not None and self._exchange.kind == transport.asked:
            answered, refused = self._exchange.status()
        scored = [evaluation.pooled for evaluation in state.history.evaluations if evaluation.pooled]
        return {
            "asked": transport.asked,
            "round": state.round,
            "rounds": rounds,
            "answered": answered,
            "waiting": sorted(set(transport.sites()) - set(answered) - set(refused) - left),
            "refused": refused,
            "balanced_accuracy": scored[-1].balanced_accuracy if scored else None,
            "score": score_text(state.history),
            "seconds_left": seconds_left(state.history, rounds),
            "lines": list(self._lines.values()),
            "past": past_rounds(state.history),
        }

    def _note(self, step: Step, state: GlobalState) -> None:
        """Write the files that people read beside a state that is safe on disk."""
        self._state = state
        self._chain.write_results(state)
        write_metrics(context.run_folder(self._fl_ctx), self._job.name, state.history)
        if step.kind in (TRAIN, VALIDATE) and not step.of_head:
            track_pooled(self._controller, state.history, self._fl_ctx)
        if step.kind == TRAIN:
            self._controller.fire_event(AppEventType.ROUND_DONE, self._fl_ctx)
            self._log(round_line(state.history, self._job))
            if warning := runaway_line(state.history):
                self._log(warning, warn=True)

    def _say(self, site: str, round_number: int, line: str, *, warn: bool = False) -> None:
        """Log a line about a site, and keep it for whoever watches; those of the round before last go."""
        self._log(line, warn=warn)
        kept = {key: text for key, text in self._lines.items() if int(key.split("/")[0]) >= round_number - 1}
        self._lines = kept | {f"{round_number}/{site}": line}

    def _log(self, line: str, *, warn: bool = False) -> None:
        log = self._controller.log_warning if warn else self._controller.log_info
        log(self._fl_ctx, line, fire_event=False)
