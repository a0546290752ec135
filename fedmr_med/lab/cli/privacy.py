"""``fedmr-med privacy audit`` and ``sums``: attack what a site would release, measure what its protection costs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json
from fedmr_med.errors import ConfigError
from fedmr_med.lab.cli.common import numbers as whole_numbers


def audit(
    site_file: Annotated[Path, typer.Argument(help="A site.yaml: data and policy.")],
    job: Annotated[Path | None, typer.Option(help="Job folder; default: Fed-ISIC2019 with FedMR.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model file to start the round from; default: the job's.")] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option("--with", help="site.yaml of another site, to attack the secure total too; two or more."),
    ] = None,
    noise: Annotated[float, typer.Option(min=0.01, help="Noise multiplier of the defence `noise`.")] = 2.0,
    steps: Annotated[int, typer.Option(min=1, help="Steps that make a picture from a prototype.")] = 200,
    out: Annotated[Path | None, typer.Option(help="Write the findings to this JSON file, for `report`.")] = None,
    sacro: Annotated[
        Path | None, typer.Option(help="Write the attacks on membership to this file, as SACRO-ML reports them.")
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit code 1 if an attack on --defence gets further than this.")
    ] = None,
    defence: Annotated[str, typer.Option(help="What --fail-above looks at.")] = "policy",
    as_json: Json = False,
) -> None:
    """Attack what a site would release, under no defence, its own policy, small cells, noise, and secure sums.

    It reads the site's images and trains one round here. Nothing leaves this machine.
    """
    from fedmr_med.config import JOB_FILE, load_job
    from fedmr_med.evaluation.results import write_result
    from fedmr_med.files import check_writable
    from fedmr_med.jobs.catalog import isic_job
    from fedmr_med.lab.audit.defences import DEFENCES
    from fedmr_med.lab.audit.sacro import write_sacro
    from fedmr_med.lab.audit.site_audit import audit as run_audit
    from fedmr_med.registry import check_known
    from fedmr_med.report.pages.attacks import audit_lines
    from fedmr_med.sites import load_site

    settings = isic_job("fedmr") if job is None else load_job(job / "app" / "config" / JOB_FILE)
    names = [path.resolve().parent.name for path in (site_file, *(others or ()))]
    if len(set(names)) < len(names):
        why = "--with names a site twice; sites have the names of their folders."
        raise ConfigError(why, code="config.duplicate", key="--with")
    possible = DEFENCES if others else DEFENCES[:-1]
    check_known(defence, possible, "--defence")
    for file in filter(None, (out, sacro)):
        check_writable(file.parent)
    cohort = dict(zip(names[1:], map(load_site, others or ()), strict=True))
    result, guesses = run_audit(
        names[0], settings, load_site(site_file), noise=noise, others=cohort, initial_model=model, steps=steps
    )
    if out is not None:
        write_result(out, result)
    if sacro is not None:
        write_sacro(sacro, result, guesses)
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json")))
    if result.demo:
        typer.echo("DEMO: generated pictures stand in for images.", err=True)
    for line in audit_lines(result):
        typer.echo(line, err=as_json)
    worst = result.worst(defence)
    if fail_above is not None and worst.success > fail_above:
        typer.echo(f"{worst.attack}: {worst.success:.2f} against {defence}, above {fail_above:g}.", err=True)
        raise typer.Exit(1)


def sums(
    sites: Annotated[str, typer.Option(help="Numbers of sites, comma-separated.")] = "3,6,20",
    dropped: Annotated[str, typer.Option(help="Shares of them that are lost before masking.")] = "0,0.1,0.3",
    numbers: Annotated[int, typer.Option(min=1, help="Length of the vectors: C (d + 1) for prototypes.")] = 5128,
    kits: Annotated[
        Path | None,
        typer.Option(help="Folder of a provisioned federation: its sites, signing with their certificates."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure bytes and seconds of a secure sum in this process: the bytes of one site, and CPU time."""
    from fedmr_med.lab.audit.sums import certified, sum_cost, unsigned

    groups = [certified(kits)] if kits else [unsigned(count) for count in whole_numbers(sites, "--sites")]
    try:
        shares = [float(share) for share in dropped.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0 <= share <= 1 for share in shares):
        why = f"--dropped {dropped}: give shares from 0 to 1, comma-separated, such as 0,0.3."
        raise ConfigError(why, code="config.value", key="--dropped")
    costs = []
    for members in groups:
        for lost in sorted({round(share * len(members)) for share in shares}):
            try:
                costs.append(sum_cost(members, lost, numbers))
            except ConfigError as e:
                typer.echo(str(e), err=True)
    if as_json:
        typer.echo(json.dumps([cost.model_dump() for cost in costs]))
        return
    typer.echo(f"{'sites':>6}{'lost':>6}{'KB up':>10}{'KB down':>10}{'ms a site':>12}{'ms server':>12}{'s in all':>10}")
    for cost in costs:
        size = f"{cost.bytes_up / 1e3:>10.0f}{cost.bytes_down / 1e3:>10.0f}"
        work = f"{1e3 * cost.site_seconds:>12.0f}{1e3 * cost.server_seconds:>12.0f}{cost.seconds:>10.1f}"
        typer.echo(f"{cost.sites:>6}{cost.dropped:>6}{size}{work}")
