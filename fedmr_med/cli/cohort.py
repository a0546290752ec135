"""``fedmr-med site cohort``: the sites whose secure totals a hospital helps to open."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmr_med.cli.options import Json, answer
from fedmr_med.cli.policy import Kit
from fedmr_med.errors import ConfigError

if TYPE_CHECKING:
    from fedmr_med.secure.cohort import Cohort

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(kit: Kit = Path(), as_json: Json = False) -> None:
    """Show the cohort: secure totals are over these sites, and no others."""
    pinned = _cohort(kit).pinned()
    said = "There was no secure total yet: the sites of the first one become the cohort."
    if pinned is not None:
        said = f"Secure totals are over {', '.join(sorted(pinned))}."
    answer(as_json, {"sites": None if pinned is None else sorted(pinned)}, said)


@app.command()
def accept(
    sites: Annotated[list[str], typer.Argument(help="All sites of the new cohort, this one included.")],
    kit: Kit = Path(),
    as_json: Json = False,
) -> None:
    """Help to open totals over these sites from now on. Totals of before and after together tell more than each."""
    from getpass import getuser

    cohort = _cohort(kit)
    before = cohort.pinned()
    cohort.accept(sites, by=getuser())
    now, apart = sorted(set(sites)), sorted(set(sites) ^ (before or set(sites)))
    answer(
        as_json,
        {"sites": now, "before": None if before is None else sorted(before)},
        f"Secure totals are over {', '.join(now)} from now on.",
        *([f"Totals of before and after together tell what {', '.join(apart)} put in."] if apart else []),
    )


def _cohort(kit: Path) -> "Cohort":
    from fedmr_med.secure.cohort import Cohort
    from fedmr_med.site.client_state import CLIENT_STATE
    from fedmr_med.site.secure import COHORT_FILE

    if not (kit / "startup").is_dir():
        raise ConfigError(f"{kit} is no startup kit; --kit names the hospital's.", code="file.missing", key="--kit")
    return Cohort(kit / CLIENT_STATE / COHORT_FILE)
