"""``fedmr-med site jobs``: what was asked of a hospital, a trial of it, and what a person there decides."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json
from fedmr_med.cli.policy import Kit
from fedmr_med.cli.released import say, sum_up
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

    from fedmr_med.site.approval import APPROVALS_FILE, SHOWN, ApprovalBook

    if context.invoked_subcommand:
        return
    book = ApprovalBook(kit / APPROVALS_FILE)
    if approve and refuse:
        raise PolicyError("Give one of --approve and --refuse.", code="config.conflict", key="--approve")
    if which := approve or refuse:
        request = book.decide(which, approved=approve is not None, by=getuser())
        done = "Approved" if approve else "Refused"
        say(f"{done}: {request.name}, settings {request.settings[:SHOWN]}.", err=True)
    requests = book.requests()
    if as_json:
        lines = [dataclasses.asdict(request) | {"state": request.status} for request in requests]
        typer.echo(json.dumps({"jobs": lines}))
        return
    for request in requests:
        say(f"{request.time} {request.name}: settings {request.settings[:SHOWN]}, chain {request.chain}")
        say(f"    {request.status}")
        for line in request.words:
            say(f"    {line}")
        if request.changed is not None:
            say(f"    Differs from the last approved: {'; '.join(request.changed) or 'in nothing'}")
    if not requests:
        typer.echo("Nothing has been asked yet.")


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
    if as_json:
        typer.echo(json.dumps({"replies": lines}))
        return
    if weights is None and job.model.weights is not None:
        say(f"Without the weights that the job brings (SHA-256 {job.model.weights}); --weights FILE tries them.")
    sum_up(lines)
    typer.echo("A trial on generated pictures, of ten steps a round: nothing has left, and no budget was spent.")
