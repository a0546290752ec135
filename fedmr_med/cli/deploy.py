"""``fedmr-med deploy``: the coordinator's commands."""

import dataclasses
import os
import sys
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmr_med.cli.options import Json, answer

if TYPE_CHECKING:
    from fedmr_med.deploy.session import Session

KIT_VARIABLE = "FEDMR_MED_KIT"

app = typer.Typer(no_args_is_help=True)

Kit = Annotated[Path, typer.Option(envvar=KIT_VARIABLE, help="Startup kit of the lead or administrator.")]
Workspace = Annotated[Path, typer.Option("-w", "--workspace", help="Keeps the root key and all kits.")]
Project = Annotated[Path, typer.Option(help="FLARE's project file.")]
Sites = Annotated[Path, typer.Option(help="Folder with one folder per hospital: what is suggested to it.")]
Host = Annotated[str | None, typer.Option(help="Name by which hospitals reach the server.")]
Port = Annotated[int | None, typer.Option(help="The server's port.")]
Chain = Annotated[str, typer.Argument(help="Id of the chain, as printed by submit.")]


@app.command()
def provision(
    workspace: Workspace,
    project: Project = Path("provisioning/project.yml"),
    sites: Sites = Path("sites"),
    host: Host = None,
    port: Port = None,
    as_json: Json = False,
) -> None:
    """Make a locked and signed startup kit for the server, each hospital and each person."""
    from fedmr_med.deploy.provision import provision as make_kits

    folder = make_kits(project, workspace, sites, host=host, port=port)
    kits = sorted(path.name for path in folder.iterdir() if path.is_dir())
    answer(
        as_json,
        {"folder": str(folder), "kits": kits},
        f"Kits in {folder}: {', '.join(kits)}.",
        f"Keep {folder.parent / 'state'} secret: it holds the root key of the federation.",
    )


@app.command()
def renew(
    workspace: Workspace,
    names: Annotated[list[str] | None, typer.Argument(help="Server, hospitals, people; default: who expires.")] = None,
    project: Project = Path("provisioning/project.yml"),
    sites: Sites = Path("sites"),
    host: Host = None,
    port: Port = None,
    within: Annotated[int, typer.Option(help="Renew what expires within this many days.")] = 60,
    as_json: Json = False,
) -> None:
    """Make kits with new certificates; nobody's policy is touched, the hospital takes it over (site adopt)."""
    from datetime import timedelta

    from fedmr_med.deploy.renewal import renew as renew_kits

    chosen, soon = tuple(names or ()), timedelta(days=within)
    folder, renewed = renew_kits(project, workspace, sites, names=chosen, within=soon, host=host, port=port)
    answer(
        as_json,
        {"folder": str(folder), "renewed": renewed},
        f"Renewed in {folder}: {', '.join(renewed)}.",
        "Hand over these kits; each owner runs `fedmr-med site adopt OLD_KIT` in the new one and restarts.",
    )


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(help="A job folder, as `jobs write` makes it.")],
    kit: Kit,
    site: Annotated[list[str] | None, typer.Option(help="Run at this hospital only; repeat for more.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="A setting, such as federation.rounds=3.")] = None,
    demo: Annotated[bool, typer.Option(help="Use the job's settings for generated pictures.")] = False,
    watch_it: Annotated[bool, typer.Option("--watch", help="Watch and resume until the last round.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a job; it is signed with your key and sent without custom code."""
    from fedmr_med.deploy import chain as chains
    from fedmr_med.jobs.changes import parse_settings

    changes = parse_settings(settings or [])
    with _connected(kit) as session:
        chain = chains.submit(session, job, sites=tuple(site or ()), changes=changes, demo=demo)
        if waits := chains.shortage(chains.jobs(session, chain)[-1], session.hospitals()):
            typer.echo(f"The job {waits}. It waits for them.", err=True)
        if watch_it:
            typer.echo(chain, err=True)
            _watch(session, chain, resume_it=True, as_json=as_json)
        else:
            answer(as_json, {"chain": chain}, chain)


@app.command()
def watch(
    chain: Chain,
    kit: Kit,
    resume_it: Annotated[bool, typer.Option("--resume", help="Submit a follow-up whenever a job ends early.")] = False,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a server that does not answer.")] = 3600,
    html: Annotated[Path | None, typer.Option(help="Keep a page up to date, which a browser shows.")] = None,
    notify: Annotated[
        str | None,
        typer.Option(metavar="CMD", help="Run CMD MESSAGE when a job ends early and when the chain is complete."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show round, hospitals in and out, metric and time left, until the last round is done."""
    with _connected(kit) as session:
        _watch(session, chain, resume_it=resume_it, patience=patience, html=html, notify=notify, as_json=as_json)


@app.command()
def resume(
    chain: Chain,
    kit: Kit,
    from_previous: Annotated[
        bool, typer.Option("--from-previous", help="Go back to the checkpoint before the last, if that is damaged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Submit a follow-up that resumes after the chain's last complete round."""
    from fedmr_med.deploy import chain as chains

    with _connected(kit) as session:
        job = chains.resume(session, chain, from_previous=from_previous)
        answer(as_json, {"chain": chain, "job": job}, job)


@app.command()
def withdraw(
    chain: Chain,
    site: Annotated[str, typer.Argument(help="The hospital that leaves.")],
    kit: Kit,
    watch_it: Annotated[bool, typer.Option("--watch", help="Watch until the new model is there.")] = False,
    as_json: Json = False,
) -> None:
    """Take a hospital out of a chain: a new head without its statistics, and it is never asked again.

    With secure sums a person at the hospital says so first, and the server learns its part: fedmr-med site withdraw.
    """
    from fedmr_med.deploy import chain as chains

    with _connected(kit) as session:
        left = chains.withdraw(session, chain, site)
        lines = [f"The job {left.job} takes {site} out of the chain {chain}."]
        if left.secure:
            lines.append(
                f"{site} sends its part of the total for it, once `fedmr-med site withdraw {chain}` says so there."
            )
        if left.trained:
            lines.append(
                f"Rounds that {site} has trained stay in the weights; only the closed-form head is without it. Results "
                "and model card say from which round to retrain."
            )
        if watch_it:
            for line in lines:
                typer.echo(line, err=True)
            _watch(session, chain, resume_it=False, as_json=as_json)
        else:
            answer(as_json, {"chain": chain, "site": site, "job": left.job}, *lines)


@app.command()
def abort(chain: Chain, kit: Kit, as_json: Json = False) -> None:
    """End the running job of a chain; its checkpoint stays, and `deploy resume` continues from it."""
    from fedmr_med.deploy import chain as chains

    with _connected(kit) as session:
        job = chains.abort(session, chain)
        answer(as_json, {"chain": chain, "job": job}, f"The job {job} of the chain {chain} is ended.")


@app.command()
def share(
    chain: Chain,
    person: Annotated[str, typer.Argument(help="Name of the lead who may resume the chain.")],
    kit: Annotated[Path, typer.Option(envvar=KIT_VARIABLE, help="The server's kit, on the server.")],
    as_json: Json = False,
) -> None:
    """Let another lead resume a chain, which belongs to the one who started it; run it at the server."""
    from fedmr_med.deploy.acts import record
    from fedmr_med.server.owner import share as open_to

    open_to(kit / "chains" / chain, person)
    record(kit, "share", chain=chain, person=person)
    answer(as_json, {"chain": chain, "person": person}, f"{person} may resume the chain {chain}.")


@app.command("list")
def list_chains(kit: Kit, as_json: Json = False) -> None:
    """List the chains the server knows, with owner, jobs and state."""
    with _connected(kit) as session:
        jobs = session.jobs()
        chains = [[info for info in jobs if info.chain == name] for name in dict.fromkeys(info.chain for info in jobs)]
        lines = [
            f"{first.chain}  {first.submitted}  {first.name}  {first.owner}  {_jobs(chain)}  {chain[-1].status}"
            for chain in chains
            for first in chain[:1]
        ]
        values = [[dataclasses.asdict(info) for info in chain] for chain in chains]
        answer(as_json, {"chains": values}, *(lines or ["No chain yet."]))


@app.command()
def status(
    kit: Kit,
    workspace: Annotated[Path | None, typer.Option("-w", "--workspace", help="To see all certificates.")] = None,
    as_json: Json = False,
) -> None:
    """Show server, connected hospitals, running chains and certificates that expire."""
    from fedmr_med.deploy.status import in_lines
    from fedmr_med.deploy.status import status as ask

    with _connected(kit) as session:
        state = ask(session, workspace)
        answer(as_json, state, *in_lines(state))


@app.command()
def log(
    folder: Annotated[Path, typer.Argument(help="A person's kit, or the workspace of provisioning.")],
    as_json: Json = False,
) -> None:
    """Show the coordinator's acts and check that no line was changed; exit code 1 if one was."""
    from fedmr_med.deploy.acts import ACTS_FILE
    from fedmr_med.files import journal

    acts = journal.read(folder / ACTS_FILE)
    lines = [
        f"{act['time']} {act['by']} {act['act']}: "
        + ", ".join(f"{key} {value}" for key, value in act.items() if key not in ("time", "by", "act"))
        for act in acts.entries
    ]
    lines += [f"NOT INTACT: {folder / ACTS_FILE}: {problem}" for problem in acts.problems]
    told = {"acts": acts.entries, "problems": acts.problems, "head": acts.head}
    answer(as_json, told, *lines, ok=not acts.problems)


@app.command()
def download(
    chain: Chain,
    kit: Kit,
    out: Annotated[Path, typer.Option(help="Folder for model, checkpoint and results.")],
    as_json: Json = False,
) -> None:
    """Fetch the best model, the checkpoint and the results of a chain."""
    from fedmr_med.deploy import chain as chains
    from fedmr_med.errors import FedMRError
    from fedmr_med.files import check_writable
    from fedmr_med.report.document import write_report

    check_writable(out)
    with _connected(kit) as session:
        folder = chains.download(session, chain, out)
        try:
            write_report([folder], folder / "report.html")
        except FedMRError as e:  # the files are there all the same
            typer.echo(f"no report was written: {e}", err=True)
        files = sorted(path.name for path in folder.iterdir())
        answer(as_json, {"folder": str(folder), "files": files}, f"{folder}: {', '.join(files)}")


@app.command()
def dossier(
    chain: Chain,
    kit: Kit,
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    approvals: Annotated[
        list[Path] | None, typer.Option(help="What a hospital hands over of `site jobs --json`; repeat for more.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the evidence folder of a chain: job, digests, card, report, packages, and which questions stay open."""
    import tempfile

    from fedmr_med.deploy import chain as chains
    from fedmr_med.deploy.acts import of_chain
    from fedmr_med.errors import ConfigError
    from fedmr_med.export.dossier import write_dossier

    if out.exists():
        raise ConfigError(f"{out} exists; choose another --out.", code="file.foreign", key="--out")
    with _connected(kit) as session:
        results, acts = chains.download(session, chain, out / "results"), of_chain(session.kit, chain)
        with tempfile.TemporaryDirectory() as folder:
            source = chains.submitted(session, chain, Path(folder))
            files = write_dossier(source, results, out, chain=chain, acts=acts, approvals=approvals or ())
        answer(as_json, {"folder": str(out), "files": [str(path) for path in files]}, f"{out}: {len(files)} files")


def _watch(
    session: "Session",
    chain: str,
    *,
    resume_it: bool,
    as_json: bool,
    patience: float = 3600,
    html: Path | None = None,
    notify: str | None = None,
) -> None:
    from fedmr_med.deploy import live
    from fedmr_med.deploy.watch import Watcher
    from fedmr_med.errors import FedMRError

    page = live.LivePage(html, chain) if html else None
    command = live.command_of(notify) if notify is not None else None

    def say(line: str) -> None:
        typer.echo(line, err=True)
        if page:
            page.hear(line)

    def call(sentence: str) -> None:
        if command and (problem := live.notify(command, sentence)):
            say(problem)

    watcher = Watcher(session, chain, say, patience=patience, see=page.see if page else None, call=call)
    try:
        watched = watcher.run(resume=resume_it)
    except FedMRError as e:
        if page:
            page.end(str(e))
        raise
    if page:
        page.end(f"complete after {_jobs(watched.jobs)}; fetch it with `fedmr-med deploy download {chain}`")
    answer(
        as_json,
        {"chain": watched.chain, "jobs": watched.jobs, "status": watched.status},
        f"The chain {chain} is complete after {_jobs(watched.jobs)}; fetch it with deploy download.",
    )


def _jobs(jobs: Sized) -> str:
    return "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"


@contextmanager
def _connected(kit: Path) -> Iterator["Session"]:
    """Connect for the rest of a command.

    Its end is that of the process: FLARE's connection leaves threads behind that try to connect for a while.
    """
    from fedmr_med.deploy.session import Session

    with Session(kit) as session:
        yield session
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
