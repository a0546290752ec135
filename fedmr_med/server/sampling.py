"""Which sites take part in a round."""

from collections.abc import Iterable

from fedmr_med.seeding import numpy_generator


def draw_sites(names: Iterable[str], count: int | None, *, seed: int, round_number: int) -> list[str]:
    """Draw the sites of a round by seed, in the order of their names; the same whoever connected first.

    Args:
        names: all sites of the federation.
        count: how many to draw; None, or more than there are, takes all of them.
        seed: the job's.
        round_number: number of the round, from 0.
    """
    ordered = sorted(names)
    if count is None or count >= len(ordered):
        return ordered
    drawn = numpy_generator(seed, "sites", round_number).choice(len(ordered), count, replace=False)
    return [ordered[index] for index in sorted(drawn.tolist())]
