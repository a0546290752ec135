"""The guard: the last of three layers. It looks at the reply after all filters, the job's own included."""

import copy
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedmr_med.flare import context
from fedmr_med.flare.outgoing import check_headers, empty, released, same_message, task_headers


class PolicyGuard(FLComponent):
    """Empties a reply that carries anything the site's policy does not allow.

    A job's filter can put back what the site's filter removed, and a job's component can change the reply until
    it is sent. So the guard looks twice: after all filters, and right before sending. The reply is changed in
    place, because FLARE only logs what a component raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reply: Shareable | None = None
        self._cookies: Any = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Check the reply on its way out."""
        if event_type == EventType.BEFORE_TASK_EXECUTION:
            self._reply = None
            context.keep_view(fl_ctx, None)
            task = fl_ctx.get_prop(FLContextKey.TASK_DATA)
            self._cookies = copy.deepcopy(task.get_cookie_jar()) if isinstance(task, Shareable) else None
        elif event_type == EventType.AFTER_TASK_RESULT_FILTER:
            self._reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
            self._check(fl_ctx)
        elif event_type == EventType.BEFORE_SEND_TASK_RESULT:
            self._check(fl_ctx)
            self._reply = None

    def _check(self, fl_ctx: FLContext) -> None:
        if self._reply is None:
            return  # FLARE's own reply: a return code alone
        try:
            reason = None
            check_headers(self._reply, fl_ctx, self._cookies)
            if not same_message(released(self._reply, fl_ctx), self._reply):
                reason = "it carries more than the site's policy allows"
        except Exception as e:
            # Whatever went wrong, what was not checked does not leave.
            reason = str(e)
        if reason:
            empty(self._reply, ReturnCode.TASK_RESULT_FILTER_ERROR, task_headers(fl_ctx, self._cookies))
            context.note(fl_ctx, reason=reason)
            self.log_error(fl_ctx, f"the guard emptied the reply: {reason}", fire_event=False)
