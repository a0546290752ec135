"""``fedmr-med init``."""

from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, answer


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(),
    as_json: Json = False,
) -> None:
    """Write what a federation starts from: provisioning/project.yml, and sites/ with a folder per hospital."""
    from fedmr_med.jobs.templates import write_templates

    written = [str(path) for path in write_templates(folder)]
    answer(as_json, {"files": written}, *written, "Edit them; then `fedmr-med deploy provision -w WORKSPACE`.")
