"""``fedmr-med site``: the commands of a hospital's data steward."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmr_med.cli import cohort, policy, site_jobs
from fedmr_med.cli.options import Json, answer, judge
from fedmr_med.cli.policy import Job, Kit, job_of
from fedmr_med.cli.released import summary
from fedmr_med.errors import ConfigError

app = typer.Typer(no_args_is_help=True)
app.add_typer(policy.app, name="policy", help="Show, change and explain what this hospital shares.")
app.add_typer(cohort.app, name="cohort", help="Show and change whose secure totals this hospital helps to open.")
app.add_typer(site_jobs.app, name="jobs")


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

    found = preflight(kit, job_of(job), data=data, connection=connection)
    judge(as_json, "checks", found, lambda one: f"{one.name:<18} {one.message}")


@app.command()
def health(
    kit: Kit = Path(),
    out: Annotated[Path | None, typer.Option(help="Status file to write, for monitoring.")] = None,
    as_json: Json = False,
) -> None:
    """Say whether the client or server of a kit is at work on this machine; exit code 1 if it needs a person."""
    from fedmr_med.deploy.health import health as look
    from fedmr_med.files import write_json

    found = look(kit)
    if out is not None:
        write_json(out, found.as_values())
    running = f"process {found.process}, since {found.since}" if found.process else "not running"
    said = f"{'ok' if found.ok else 'NOT OK'}: {running}; {'; '.join((*found.problems, *found.warnings))}"
    answer(as_json, found.as_values(), said, ok=found.ok)


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
    answer(as_json, {"kit": str(kit)}, f"{kit} is locked and sealed. Next: fedmr-med site check --kit {kit}")


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
    answer(as_json, {"kit": str(kit), "taken": taken}, said)


@app.command()
def withdraw(
    chain: Annotated[str, typer.Argument(help="Id of the chain, as `site jobs` lists it.")],
    kit: Kit = Path(),
    as_json: Json = False,
) -> None:
    """Leave a chain for good: nothing of it is answered here any more.

    Where the job adds statistics up securely, this hospital's part is then sent once more, alone, so that it can be
    subtracted: the server learns it. The coordinator takes the hospital out: fedmr-med deploy withdraw CHAIN SITE.
    """
    from getpass import getuser

    from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook

    book = ApprovalBook(kit / APPROVALS_FILE)
    book.leave(chain, by=getuser())
    answer(
        as_json,
        {"chain": chain, **book.left()[chain]},
        f"This hospital has left the chain {chain}, and answers nothing of it any more.",
        f"The coordinator takes out what it gave: fedmr-med deploy withdraw {chain} SITE",
    )


@app.command()
def seal(kit: Kit = Path(), as_json: Json = False) -> None:
    """Sign the kit's files as they are now with this site's own key, after a change of your own."""
    from fedmr_med.deploy.manifest import write_seal

    write_seal(kit)
    answer(as_json, {"kit": str(kit)}, f"{kit.resolve()} is sealed.")


@app.command()
def audit(
    kit: Kit = Path(),
    head: Annotated[str | None, typer.Option(help="A head noted earlier: its line must still be there.")] = None,
    as_json: Json = False,
) -> None:
    """Sum up what has left this hospital and check that no line of the journal was changed; exit code 1 if one was."""
    from fedmr_med.deploy.kit import must_be_a_hospitals
    from fedmr_med.files import journal
    from fedmr_med.flare.audit import AUDIT_FILE
    from fedmr_med.schema import printable
    from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook

    left = ApprovalBook(kit / APPROVALS_FILE).left()
    path = kit / AUDIT_FILE
    if not kit.is_dir():
        raise ConfigError(
            f"{kit} is not a folder; --kit names the hospital's startup kit.", code="file.missing", key="--kit"
        )
    if not path.exists() and head is None:
        if not left:
            must_be_a_hospitals(kit)
        empty: dict[str, Any] = {"replies": [], "problems": [], "head": None, "left": left}
        answer(as_json, empty, "Nothing has left this hospital yet: no job has run here.")
        return
    found = journal.read(path, known_head=head)
    answer(
        as_json,
        {"replies": found.entries, "problems": found.problems, "head": found.head, "left": left},
        *summary(found.entries),
        *(printable(f"{said['time']} left the chain {one}, by the word of {said['by']}") for one, said in left.items()),
        *(f"line {number} of {path} was not written to its end, so its reply was not sent" for number in found.torn),
        *(f"NOT INTACT: {path}: {problem}" for problem in found.problems),
        f"head {found.head}; note it elsewhere to notice later if lines are cut off (--head)",
        ok=not found.problems,
    )
