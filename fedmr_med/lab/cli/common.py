"""What the commands of the lab have in common: lists as options, and that those which take hours can be resumed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from fedmr_med.errors import ConfigError

Out = Annotated[Path, typer.Option(help="Folder for the results; a comparison that was stopped resumes there.")]
Seeds = Annotated[str, typer.Option(help="Seeds, comma-separated.")]
WithoutLeaked = Annotated[
    bool, typer.Option("--without-leaked", help="Leave out test images of lesions that are in a train fold.")
]
MaxHours = Annotated[
    float | None,
    typer.Option(min=0, help="Stop after so many hours, with exit code 75; the same command resumes."),
]

OUT_OF_HOURS_CODE = 75
"""Exit code of a command whose hours are over: the same command goes on. (EX_TEMPFAIL of sysexits.h)"""


class OutOfHours(KeyboardInterrupt):
    """The hours of a command are over. Like Ctrl-C, it must not be taken for the failure of a run."""


@contextmanager
def limited_to(hours: float | None) -> Iterator[None]:
    """Stop the body after some hours, wherever it is, as Ctrl-C would; only in a process's main thread.

    Raises:
        OutOfHours: the hours are over.
    """
    if hours is None:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfHours

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(3600 * hours, 1e-6))  # 0 would mean never
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def resumable(max_hours: float | None) -> Iterator[None]:
    """End the command with a word on how to go on when its hours are over, or after Ctrl-C."""
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
        why = f"{option} {text}: give whole numbers, comma-separated, such as 0,1,2."
        raise ConfigError(why, code="config.value", key=option) from e
