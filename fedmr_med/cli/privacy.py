"""``fedmr-med privacy``."""

import json
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Say what a privacy budget allows; attack what a site would release."""


@app.command()
def noise(
    epsilon: Annotated[float, typer.Option(min=0.01, help="What all releases together may cost.")],
    releases: Annotated[int, typer.Option(min=1, help="How many: prototypes every k rounds, and the head.")] = 1,
    delta: Annotated[float, typer.Option(min=1e-12, max=0.01, help="Chance that the guarantee fails.")] = 1e-5,
    rate: Annotated[float, typer.Option(min=1e-6, max=1, help="Share of the images in a release, drawn unseen.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Say which noise multiplier keeps releases within a privacy budget: `federation.private.noise` of a job."""
    from fedmr_med.privacy.accountant import noise_for

    multiplier = noise_for(epsilon, rate=rate, steps=releases, delta=delta)
    typer.echo(json.dumps({"noise": multiplier}) if as_json else f"{multiplier:.3f}")
