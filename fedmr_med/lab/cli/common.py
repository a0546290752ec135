"""What the commands of the lab have in common: lists as options, and that those which take hours can be resumed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from fedmr_med.errors import ConfigError

MaxHours = Annotated[
    float | None,
    typer.Option(min=0, help="Stop after so many hours, with exit code 75; the same command resumes."),
]


@contextmanager
def resumable(max_hours: float | None) -> Iterator[None]:
    """End the command with a word on how to go on when its hours are over, or after Ctrl-C."""
    from fedmr_med.lab.comparison.hours import OUT_OF_HOURS_CODE, OutOfHours, limited_to

    try:
        with limited_to(max_hours):
            yield
    except OutOfHours:
        typer.echo(f"\nStopped after {max_hours:g} hours, as asked. The same command resumes from here.", err=True)
        raise typer.Exit(OUT_OF_HOURS_CODE) from None
    except KeyboardInterrupt:
        typer.echo("\nStopped. The same command resumes from here.", err=True)
        raise typer.Exit(130) from None


def end_with_failures(sentence: str) -> NoReturn:
    """End a command some of whose runs failed. Its results are printed already, and have the error of each run."""
    typer.echo(f"fedmr-med: {sentence}", err=True)
    raise typer.Exit(2)


def numbers(text: str, option: str = "--seeds") -> tuple[int, ...]:
    """Read comma-separated whole numbers, as given for an option.

    Raises:
        ConfigError: the text is something else.
    """
    try:
        return tuple(dict.fromkeys(int(number) for number in text.split(",")))
    except ValueError as e:
        raise ConfigError(
            f"{option} {text}: give whole numbers, comma-separated, such as 0,1,2.", code="config.value", key=option
        ) from e
