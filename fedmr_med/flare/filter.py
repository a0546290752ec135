"""The filter: the second of three layers that keep on site what its policy does not let out."""

from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fedmr_med.errors import FedMRError
from fedmr_med.flare import context
from fedmr_med.flare.outgoing import released, same_message


class PrototypeFilter(Filter):
    """Passes on what the policy allows of a task's result; refuses whatever it cannot read in full.

    FLARE turns an exception in a result filter into an empty reply with the code ``TASK_RESULT_FILTER_ERROR``.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result as it may leave.

        Raises:
            FedMRError: the site has no valid policy, or the result does not have the agreed form.
        """
        try:
            left = released(shareable, fl_ctx)
        except FedMRError as e:
            context.note(fl_ctx, reason=str(e))
            raise
        if not same_message(left, shareable):
            self.log_warning(fl_ctx, "removed from the reply what the site's policy does not allow", fire_event=False)
        return left
