"""What an audit found, as it is written to a file and read by a report."""

from fedmr_med.schema import Strict


class Finding(Strict):
    """How far an attack gets against a defence: from 0, nothing, to 1."""

    defence: str
    attack: str
    success: float


class OfSize(Strict):
    """What a prototype of few images gives away, with no defence; each from 0, chance, to 1.

    Attributes:
        images: how many images of one class the prototype is the mean of.
        nearest: how often the nearest candidate is one of them, above chance.
        membership: advantage of telling them from others of the class by their distance to it.
        inversion: likeness of the picture made from it to one of them; None where there are no pictures.
    """

    images: int
    nearest: float
    membership: float
    inversion: float | None = None


class Audit(Strict):
    """The findings of one site.

    Attributes:
        site: its name.
        images: training and test images.
        classes: (C,) training images of each class; for the site's own eyes.
        demo: whether generated pictures stood in for data.
        trained: network and local training of the model that was attacked, in words.
        noise: multiplier of the defence ``noise``.
        epsilon: what one release with that noise costs at delta = 1e-5; None without dp-accounting.
        cohort: the other sites of the secure total; empty where none was opened.
        findings: all of them.
        sizes: prototypes of the most frequent class by the number of their images.
    """

    site: str
    images: tuple[int, int]
    classes: dict[str, int]
    demo: bool
    trained: str
    noise: float
    epsilon: float | None
    cohort: tuple[str, ...]
    findings: tuple[Finding, ...]
    sizes: tuple[OfSize, ...]

    @property
    def defences(self) -> tuple[str, ...]:
        """The defences, in their order."""
        return tuple(dict.fromkeys(finding.defence for finding in self.findings))

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks, in their order."""
        return tuple(dict.fromkeys(finding.attack for finding in self.findings))

    def success(self, attack: str, defence: str) -> float:
        """Return how far an attack gets against a defence."""
        return next(f.success for f in self.findings if (f.attack, f.defence) == (attack, defence))

    def worst(self, defence: str) -> Finding:
        """Return what gets furthest against a defence."""
        return max((f for f in self.findings if f.defence == defence), key=lambda finding: finding.success)
