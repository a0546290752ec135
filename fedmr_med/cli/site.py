"""``fedmr-med site``: the commands of a hospital's data steward."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmr_med.cli import cohort, policy
from fedmr_med.cli.policy import Job, Json, Kit, job_of
from fedmr_med.errors import ConfigError, PolicyError

app = typer.Typer(no_args_is_help=True)
app.add_typer(policy.app, name="policy", help="Show, change and explain what this hospital shares.")
app.add_typer(cohort.app, name="cohort", help="Show and change whose secure totals this hospital helps to open.")

_FEW = 5
_MARKS = {"pass": "ok  ", "note": "note", "fix": "FIX "}


@app.command()
def check(
    kit: Kit = Path(),
    job: Job = None,
    data: Annotated[bool, typer.Option(help="Read every image.")] = True,
    connection: Annotated[bool, typer.Option(help="Connect to the server.")] = True,
    as_json: Json = False,
) -> None:
    """Check kit, policy, data, machine and connection; exit code 1 if anything has to be fixed."""
    from fedmr_med.deploy.preflight import preflight

    checks = []
    for entry in preflight(kit, job_of(job), data=data, connection=connection):
        checks.append(entry)
        typer.echo(f"{_MARKS[entry.outcome]} {entry.name:<18} {entry.message}", err=as_json)
    failed = [entry for entry in checks if entry.outcome == "fix"]
    if as_json:
        lines = [{"name": e.name, "outcome": e.outcome, "message": e.message} for e in checks]
        typer.echo(json.dumps({"ok": not failed, "checks": lines}))
    if failed:
        raise typer.Exit(1)


@app.command()
def health(
    kit: Kit = Path(),
    out: Annotated[Path | None, typer.Option(help="Status file to write, for monitoring.")] = None,
    as_json: Json = False,
) -> None:
    """Say whether the client or server of a kit is at work on this machine; exit code 1 if it needs a person."""
    from fedmr_med.deploy.health import health as look
    from fedmr_med.files import write_text

    found = look(kit)
    if out is not None:
        write_text(out, json.dumps(found.as_values(), indent=1) + "\n")
    if as_json:
        typer.echo(json.dumps(found.as_values()))
    else:
        running = f"process {found.process}, since {found.since}" if found.process else "not running"
        typer.echo(f"{'ok' if found.ok else 'NOT OK'}: {running}; {'; '.join((*found.problems, *found.warnings))}")
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def lock(
    site_file: Annotated[Path | None, typer.Argument(help="The hospital's site.yaml; none for the server.")] = None,
    kit: Kit = Path(),
    as_json: Json = False,
) -> None:
    """Lock a kit that FLARE's distributed provisioning made here, and seal it with this machine's own key."""
    from fedmr_med.deploy.builder import lock as lock_kit
    from fedmr_med.deploy.manifest import write_seal
    from fedmr_med.files import write_text
    from fedmr_med.sites import SITE_FILE, load_site

    server = (kit / "startup" / "fed_server.json").is_file()
    if server == (site_file is not None):
        raise ConfigError(
            f"{kit} is the {'server' if server else 'hospital'}'s kit; give a site.yaml for hospitals only.",
            code="config.conflict",
        )
    if site_file is not None:
        load_site(site_file)
    lock_kit(kit, server=server)
    if site_file is not None:
        write_text(kit / "local" / SITE_FILE, site_file.read_text(encoding="utf-8"))
    write_seal(kit)
    _done(kit, f"{kit} is locked and sealed. Next: fedmr-med site check --kit {kit}", as_json)


@app.command()
def adopt(
    old_kit: Annotated[Path, typer.Argument(help="The kit used so far.")],
    kit: Kit = Path(),
    as_json: Json = False,
) -> None:
    """Take over policy, state and logs of an old kit into this new one; for the server and people as well."""
    from fedmr_med.deploy.adopt import adopt as take_over

    taken = take_over(old_kit, kit)
    said = f"{kit} has taken over {', '.join(taken)}. Next: fedmr-med site check --kit {kit}"
    _done(kit, said, as_json, taken=list(taken))


@app.command()
def seal(kit: Kit = Path(), as_json: Json = False) -> None:
    """Sign the kit's files as they are now with this site's own key, after a change of your own."""
    from fedmr_med.deploy.manifest import write_seal

    write_seal(kit)
    _done(kit, f"{kit} is sealed.", as_json)


@app.command()
def jobs(
    kit: Kit = Path(),
    approve: Annotated[str | None, typer.Option(help="Id of settings or chain, or its beginning.")] = None,
    refuse: Annotated[str | None, typer.Option(help="Likewise; a job that runs ends with its next task.")] = None,
    as_json: Json = False,
) -> None:
    """List what was asked of this hospital, and decide: policy.approve says which jobs wait for it."""
    from getpass import getuser

    from fedmr_med.site.approval import APPROVALS_FILE, SHOWN, ApprovalBook

    book = ApprovalBook(kit / APPROVALS_FILE)
    if approve and refuse:
        raise PolicyError("Give one of --approve and --refuse.", code="config.conflict", key="--approve")
    if which := approve or refuse:
        request = book.decide(which, approved=approve is not None, by=getuser())
        done = "Approved" if approve else "Refused"
        _say(f"{done}: {request.name}, settings {request.settings[:SHOWN]}.", err=True)
    requests = book.requests()
    if as_json:
        lines = [dataclasses.asdict(request) | {"state": request.status} for request in requests]
        typer.echo(json.dumps({"jobs": lines}))
        return
    for request in requests:
        _say(f"{request.time} {request.name}: settings {request.settings[:SHOWN]}, chain {request.chain}")
        _say(f"    {request.status}")
        for line in request.words:
            _say(f"    {line}")
        if request.changed is not None:
            _say(f"    Differs from the last approved: {'; '.join(request.changed) or 'in nothing'}")
    if not requests:
        typer.echo("Nothing has been asked yet.")


@app.command()
def audit(
    kit: Kit = Path(),
    head: Annotated[str | None, typer.Option(help="A head noted earlier: its line must still be there.")] = None,
    as_json: Json = False,
) -> None:
    """Sum up what has left this hospital and check that no line of the journal was changed; exit code 1 if one was."""
    from fedmr_med.files import journal
    from fedmr_med.flare.audit import AUDIT_FILE

    path = kit / AUDIT_FILE
    if not kit.is_dir():
        raise ConfigError(
            f"{kit} is not a folder; --kit names the hospital's startup kit.", code="file.missing", key="--kit"
        )
    if not path.exists() and head is None:
        empty: dict[str, Any] = {"replies": [], "problems": [], "head": None}
        typer.echo(json.dumps(empty) if as_json else "Nothing has left this hospital yet: no job has run here.")
        return
    found = journal.read(path, known_head=head)
    lines = found.entries
    if as_json:
        typer.echo(json.dumps({"replies": lines, "problems": found.problems, "head": found.head}))
    else:
        _sum_up(lines)
        for number in found.torn:
            typer.echo(f"line {number} of {path} was not written to its end, so its reply was not sent")
        for problem in found.problems:
            typer.echo(f"NOT INTACT: {path}: {problem}")
        typer.echo(f"head {found.head}; note it elsewhere to notice later if lines are cut off (--head)")
    if found.problems:
        raise typer.Exit(1)


def _sum_up(lines: tuple[dict[str, Any], ...]) -> None:
    """Print what left: a paragraph for each job, a line in it for each exchange."""
    for job in dict.fromkeys(line["job"] for line in lines):
        mine = [line for line in lines if line["job"] == job]
        refused = Counter(_why_empty(line) for line in mine if line["code"] != "OK")
        size = sum(line["bytes"] for line in mine) / 1e6
        _say(f"{mine[0]['time']} job {job}: {len(mine)} replies, {size:.1f} MB; {refused.total()} without content")
        left = [line for line in mine if line["code"] == "OK"]
        for task in dict.fromkeys(line["task"] for line in left):
            replies = [line for line in left if line["task"] == task]
            content = [_part(part, replies) for part in sorted({name for line in replies for name in line["parts"]})]
            content += sorted({f"metrics {line['metrics']}" for line in replies if "metrics" in line})
            _say(f"    {task} ({len(replies)}x): {'; '.join(content) or 'no arrays'}")
            weights = list(dict.fromkeys(line["weights"] for line in replies if "weights" in line))
            if weights:
                others = f", and of {len(weights) - 1} others later" if len(weights) > 1 else ""
                _say(f"        of weights with SHA-256 {weights[0]}{others}")
        for reason, times in refused.items():
            _say(f"    {times}x nothing left: {reason}")


def _part(name: str, replies: list[dict[str, Any]]) -> str:
    """Say what of one part left: its classes where it has some, else its fields where there are few."""
    parts = [line["parts"][name] for line in replies if name in line["parts"]]
    classes = Counter(label for part in parts for label in part.get("classes", ()))
    fields = list(dict.fromkeys(field for part in parts for field in part.get("shapes", ())))
    told = f" ({', '.join(fields) if len(fields) <= _FEW else f'{len(fields)} arrays'})" if fields else ""
    of = f" of {', '.join(f'{label} ({count}x)' for label, count in classes.items())}" if classes else ""
    return f"{name}{told}{of}"


def _say(line: str, *, err: bool = False) -> None:
    """Print a line of which parts come from a job."""
    from fedmr_med.schema import printable

    typer.echo(printable(line), err=err)


def _why_empty(line: dict[str, Any]) -> str:
    return str(line.get("reason") or line["code"])


def _done(kit: Path, sentence: str, as_json: bool, **values: Any) -> None:
    typer.echo(json.dumps({"kit": str(kit)} | values) if as_json else sentence)
