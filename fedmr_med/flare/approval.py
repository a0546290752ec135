"""Asking the site's own people before a job may train or answer; a simulated site has none."""

import time

from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal

from fedmr_med.flare import context
from fedmr_med.privacy.refusals import FloorError, NotApprovedError
from fedmr_med.site.approval import APPROVALS_FILE, SHOWN, ApprovalBook, Verdict, settings_id
from fedmr_med.site.training import Aborted

_POLL_SECONDS = 2.0


def require_approval(fl_ctx: FLContext, abort_signal: Signal | None = None) -> None:
    """Return once the job may continue at this site.

    Args:
        fl_ctx: of the task at hand.
        abort_signal: ends the waiting; None does not wait: a reply is about to leave, and counts its job among those
            that were answered.

    Raises:
        NotApprovedError: a person has refused the job, or has not approved it in the time the policy gives.
        FloorError: as many jobs as the policy takes in a day were answered already.
        PolicyError: a key that an installed package adds to the policy refuses the job, or the journal of decisions was
            changed by hand.
        Aborted: the job was stopped meanwhile.
    """
    if context.site_in_simulator(fl_ctx):
        return
    site, _ = context.site_settings(fl_ctx)
    job = context.client_job(fl_ctx)
    policy, chain = site.policy.restricted_by(job.policy), context.chain_id(job, fl_ctx)
    book = ApprovalBook(context.root_folder(fl_ctx) / APPROVALS_FILE)
    job_id = str(fl_ctx.get_job_id())
    book.asked(job, job_id=job_id, chain=chain)
    policy.check_job(job)
    most = policy.training.max_jobs_per_day if policy.training else None
    if most is not None and book.answered_before(job_id) >= most:
        raise FloorError("jobs_per_day", f"{most} jobs were answered within a day, policy.training.max_jobs_per_day.")
    deadline = time.monotonic() + (60 * policy.approval_minutes if abort_signal else 0)
    while (verdict := book.verdict(policy, job, chain)) is Verdict.OPEN and time.monotonic() < deadline:
        if abort_signal and abort_signal.triggered:
            raise Aborted
        time.sleep(_POLL_SECONDS)
    if verdict is not Verdict.APPROVED:
        state = "was refused here" if verdict is Verdict.REFUSED else "waits for approval"
        advice = f"`fedmr-med site jobs --approve {settings_id(job)[:SHOWN]}` lets it start."
        raise NotApprovedError(
            f"The job {job.name} {state} (policy.approve: {policy.approve}). {advice}",
            code="policy.not-approved",
            key="policy.approve",
        )
    if abort_signal is None:
        book.answered(job, job_id=job_id, chain=chain)
