"""``fedmr-med jobs``."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Write FLARE job folders."""


@app.command()
def write(
    dataset: Annotated[
        str | None, typer.Option(help="Name of a dataset: isic2019, fmnist, cifar10, hyperkvasir, odir, ...")
    ] = None,
    method: Annotated[str, typer.Option(help="Name of the method.")] = "fedmr",
    split: Annotated[str | None, typer.Option(help="Partition: P5C2, dir0.5 or iid; default: the paper's.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients, if the partition does not name it.")] = None,
    model: Annotated[str | None, typer.Option(help="Name of the network; default: the paper's.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; default: the paper's.")] = None,
    share: Annotated[float, typer.Option(help="Sharing fraction: clients that send class sums.")] = 1.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, such as train.lr=0.05 or mu1=0.1.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job and its folder.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write the job folders into.")] = Path("jobs"),
    sites: Annotated[Path, typer.Option(help="Folder with one folder per hospital, for isic2019.")] = Path("sites"),
) -> None:
    """Write one job folder; without --dataset, one for each dataset of the paper."""
    from fedmr_med.jobs.catalog import any_job, paper_jobs
    from fedmr_med.jobs.changes import parse_settings
    from fedmr_med.jobs.folder import write_job

    if dataset is None:
        written = paper_jobs(sites)
    else:
        changes = parse_settings(settings or []) | ({"federation.rounds": rounds} if rounds else {})
        written = [
            any_job(
                dataset,
                method,
                split=split,
                clients=clients,
                model=model,
                share=share,
                changes=changes,
                name=name,
                sites=sites,
            )
        ]
    for job, site_files in written:
        write_job(job, out / job.name, site_files)
        typer.echo(out / job.name)
