"""Drawing images by class, with those of a patient together."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)


class Drawn(Generic[K, L]):
    """Groups that are drawn from all, class by class.

    Attributes:
        chosen: the groups drawn so far.

    Args:
        contents: number of images of each class, by group.
        chosen: the groups that are drawn from the beginning.
    """

    def __init__(self, contents: Mapping[K, Counter[L]], chosen: set[K]):
        self.chosen = chosen
        self._contents = contents
        self._left = Counter(label for key, content in contents.items() if key not in chosen for label in content)

    def fill(self, label: L, target: int, free: Sequence[K], *, everything: bool = False) -> None:
        """Draw groups as long as that brings a class nearer to a number of images; one at least, if there are two.

        A group that would take the last images of one of its classes stays.

        Args:
            label: the class.
            target: how many images of it are to be drawn in all.
            free: the groups to draw from, in the order in which they are looked at.
            everything: draw all of them, whatever is left.
        """
        have = sum(self._contents[key][label] for key in self.chosen)
        left = [key for key in free if key not in self.chosen]
        for key in left if target else ():
            more = self._contents[key][label]
            if everything or (abs(have + more - target) < abs(have - target) and self._leaves_some(key)):
                self._draw(key)
                have += more
        small = [key for key in sorted(left, key=lambda key: self._contents[key][label]) if self._leaves_some(key)]
        if target and not have and small:
            self._draw(small[0])

    def _draw(self, key: K) -> None:
        self.chosen.add(key)
        self._left.subtract(self._contents[key].keys())

    def _leaves_some(self, key: K) -> bool:
        """Whether another group of each class of a group is not drawn."""
        return all(self._left[label] > 1 for label in self._contents[key])
