"""``fedmr-med privacy``."""

from typing import Annotated

import typer

from fedmr_med.cli.options import Json, answer

app = typer.Typer(no_args_is_help=True)


@app.command()
def noise(
    epsilon: Annotated[float, typer.Option(min=0.01, help="What all releases together may cost.")],
    releases: Annotated[int, typer.Option(min=1, help="How many: prototypes every k rounds, and the head.")] = 1,
    delta: Annotated[float, typer.Option(min=1e-12, max=0.01, help="Chance that the guarantee fails.")] = 1e-5,
    rate: Annotated[float, typer.Option(min=1e-6, max=1, help="Share of the images in a release, drawn unseen.")] = 1,
    as_json: Json = False,
) -> None:
    """Say which noise multiplier keeps releases within a privacy budget: `federation.private.noise` of a job."""
    from fedmr_med.privacy.accountant import noise_for

    multiplier = noise_for(epsilon, rate=rate, steps=releases, delta=delta)
    answer(as_json, {"noise": multiplier}, f"{multiplier:.3f}")
