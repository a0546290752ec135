"""The ``fedmr-med`` command. Each group of commands is a module of this package."""

import sys

import typer

from fedmr_med.cli import data, deploy, flamby, jobs, site
from fedmr_med.cli.bench import bench
from fedmr_med.cli.paper import paper
from fedmr_med.cli.perf import perf
from fedmr_med.cli.robustness import robustness
from fedmr_med.errors import FedMRError

app = typer.Typer(
    help="Federated learning on partially class-disjoint medical images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data", help="Download, prepare, partition and describe data.")
app.add_typer(jobs.app, name="jobs", help="Write FLARE job folders.")
app.add_typer(site.app, name="site", help="A hospital's commands: check, policy, audit.")
app.add_typer(deploy.app, name="deploy", help="The coordinator's commands: provision, submit, watch, download.")
app.add_typer(flamby.app, name="flamby", help="The comparison with FLamby.")
app.command()(bench)
app.command()(paper)
app.command()(perf)
app.command()(robustness)


def main() -> None:
    """Run the command line; an error the user can fix is printed alone and gives exit code 2."""
    try:
        app()
    except FedMRError as e:
        typer.echo(f"fedmr-med: {e}", err=True)
        sys.exit(2)
