"""Rounding: a number of images says no more than its next multiple."""

from dataclasses import dataclass

from fedmr_med.privacy.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Rounding(Mechanism):
    """Rounds numbers of images to multiples of ``base``; 1 leaves them as they are."""

    base: int

    def up(self, number: int) -> int:
        """Round a number up."""
        return -(-number // self.base) * self.base

    def nearest(self, number: int) -> int:
        """Round a number to the nearest multiple, and at least to one."""
        return max(self.base, self.base * round(number / self.base))

    def sentence(self) -> str:
        """Say what it is rounded to."""
        return f"rounded to {self.base} and without classes too small to leave" if self.base > 1 else ""
