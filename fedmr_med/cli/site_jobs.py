"""``fedmr-med site jobs``: what was asked of a hospital, a trial of it, and what a person there decides."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, answer
from fedmr_med.cli.policy import Kit
from fedmr_med.cli.released import summary
from fedmr_med.errors import PolicyError

app = typer.Typer(invoke_without_command=True)


@app.callback()
def jobs(
    context: typer.Context,
    kit: Kit = Path(),
    approve: Annotated[str | None, typer.Option(help="Id of settings or chain, or its beginning.")] = None,
    refuse: Annotated[str | None, typer.Option(help="Likewise; a job that runs ends with its next task.")] = None,
    as_json: Json = False,
) -> None:
    """List what was asked of this hospital, and decide: policy.approve says which jobs wait for it."""
    from getpass import getuser

    from fedmr_med.deploy.kit import must_be_a_hospitals
    from fedmr_med.schema import printable
    from fedmr_med.site.approval import APPROVALS_FILE, SHOWN, ApprovalBook

    if context.invoked_subcommand:
        return
    book = ApprovalBook(kit / APPROVALS_FILE)
    if approve and refuse:
        raise PolicyError("Give one of --approve and --refuse.", code="config.conflict", key="--approve")
    if which := approve or refuse:
        request = book.decide(which, approved=approve is not None, by=getuser())
        done = "Approved" if approve else "Refused"
        typer.echo(printable(f"{done}: {request.name}, settings {request.settings[:SHOWN]}."), err=True)
    requests, lines = book.requests(), list[str]()
    for request in requests:
        lines.append(f"{request.time} {request.name}: settings {request.settings[:SHOWN]}, chain {request.chain}")
        lines += [f"    {line}" for line in (request.status, *request.words)]
        if request.changed is not None:
            lines.append(f"    Differs from the last approved: {'; '.join(request.changed) or 'in nothing'}")
    if not requests:
        must_be_a_hospitals(kit)
    values = [dataclasses.asdict(request) | {"state": request.status} for request in requests]
    answer(as_json, {"jobs": values}, *map(printable, lines or ["Nothing has been asked yet."]))


@app.command("try")
def try_(
    which: Annotated[str, typer.Argument(metavar="ID", help="Id of settings or chain, or its beginning.")],
    kit: Kit = Path(),
    weights: Annotated[Path | None, typer.Option(help="File with the weights that the job brings.")] = None,
    as_json: Json = False,
) -> None:
    """Answer a job on generated pictures, under this hospital's policy, and show what would leave. Nothing does."""
    from fedmr_med.deploy.kit import site_settings
    from fedmr_med.flare.trial import try_out
    from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook

    job = ApprovalBook(kit / APPROVALS_FILE).job(which)
    lines = tuple(try_out(job, site_settings(kit), weights))
    without = weights is None and job.model.weights is not None
    brought = f"Without the weights that the job brings (SHA-256 {job.model.weights}); --weights FILE tries them."
    answer(
        as_json,
        {"replies": lines},
        *([brought] if without else []),
        *summary(lines),
        "A trial on generated pictures, of ten steps a round: nothing has left, and no budget was spent.",
    )
