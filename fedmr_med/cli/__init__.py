"""The ``fedmr-med`` command. Each group of commands is a module of this package."""

import errno
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli import data, deploy, jobs, lab, model, monitor, privacy, site, start
from fedmr_med.errors import ConfigError, FedMRError
from fedmr_med.version import __version__

app = typer.Typer(
    help="Federated learning on partially class-disjoint medical images.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEBUG = "--debug"
app.add_typer(data.app, name="data", help="Download, prepare, partition and describe data.")
app.add_typer(jobs.app, name="jobs", help="Write FLARE job folders; show one.")
app.add_typer(site.app, name="site", help="A hospital's commands: check, policy, audit.")
app.add_typer(deploy.app, name="deploy", help="The coordinator's commands: provision, submit, watch, download.")
app.add_typer(monitor.app, name="monitor", help="Whether a model in use meets other images than before.")
app.add_typer(privacy.app, name="privacy", help="Attack what a site would release; what its protection costs.")
app.add_typer(lab.flamby, name="flamby", help="The comparison with FLamby.")
for command in (start.demo, model.evaluate, model.export, start.init, model.predict, start.report):
    app.command()(command)
lab.add_commands(app)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(help="A Python file of your own that registers a method, network, dataset or metric; it is run."),
    ] = None,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show where an error comes from; also after the command.")] = False,
) -> None:
    """Federated learning on partially class-disjoint medical images."""
    if plugin:
        from fedmr_med.registry import PLUGINS_VARIABLE

        for path in plugin:
            if not path.is_file():
                raise ConfigError(f"{path} does not exist.", code="file.missing", key="--plugin")
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join(str(path.resolve()) for path in plugin)


def main() -> None:
    """Run the command line. An error is printed in a sentence, without a traceback, and gives exit code 2.

    With ``--json`` standard output has it too: ``{"error": {"code", "key", "message"}}``, see :class:`FedMRError`.
    """
    debug = DEBUG in sys.argv[1:]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != DEBUG]
    try:
        app()
    except FedMRError as e:
        _fail(e, debug)
    except OSError as e:
        name = errno.errorcode.get(e.errno or 0, "error").lower()
        _fail(FedMRError(_in_words(e), code=f"system.{name}"), debug)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as e:
        sentence = f"a defect of fedmr-med: {type(e).__name__}: {e}. Please report it with what {DEBUG} shows."
        _fail(FedMRError(sentence, code="system.defect"), debug)


def _fail(error: FedMRError, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()
    typer.echo(f"fedmr-med: {error}", err=True)
    if "--json" in sys.argv[1:]:
        typer.echo(json.dumps({"error": {"code": error.code, "key": error.key, "message": str(error)}}))
    sys.stdout.flush()
    sys.exit(2)


def _in_words(error: OSError) -> str:
    """Return what the operating system refused, with the file it is about and, where it is known, what helps."""
    advice = {
        errno.EADDRINUSE: "another program uses this port: stop it, or choose another port",
        errno.EACCES: "check who may read and write it",
        errno.EPERM: "check who may read and write it",
        errno.EROFS: "choose a folder that can be written",
        errno.ENOSPC: "free some space and run the same command again",
    }.get(error.errno or 0)
    where = f"{os.fspath(error.filename)}: " if isinstance(error.filename, (str, os.PathLike)) else ""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{where}{reason[:1].lower()}{reason[1:]}{f'; {advice}' if advice else ''}."
