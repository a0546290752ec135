"""What is put down of each round and of a closed-form head."""

from typing import Annotated

from pydantic import Field

from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.evaluation.base import Statistics
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.schema import Name, Omitted, Sha256, Strict

# The largest figures of a reply that make sense. Sums of them stay finite, whatever the sites tell.
MAX_SECONDS = 1e9
MAX_TERM = 1e12
TERM_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,31}$"


class SiteReport(Strict):
    """The plain figures that a site which shares metrics adds to its reply; too few to hide anything else in.

    Attributes:
        seconds: local time.
        terms: mean of each term of the local objective.
        images_total, images_skipped: images found, and those of them that could not be read.
        epsilon: what its prototypes and heads have cost of its privacy, over all chains; None without a budget.
        training_epsilon: the same of its model updates.
        total_epsilon: of both together; None without both budgets.
    """

    seconds: float | None = Field(None, strict=True, ge=0, le=MAX_SECONDS)
    terms: dict[
        Annotated[str, Field(strict=True, pattern=TERM_PATTERN)],
        Annotated[float, Field(strict=True, ge=-MAX_TERM, le=MAX_TERM)],
    ] = Field(default={}, max_length=8)
    images_total: int | None = Field(None, strict=True, ge=0, le=MAX_IMAGES)
    images_skipped: int | None = Field(None, strict=True, ge=0, le=MAX_IMAGES)
    epsilon: Omitted[Annotated[float, Field(strict=True, ge=0, le=MAX_TERM)]] = None
    training_epsilon: Omitted[Annotated[float, Field(strict=True, ge=0, le=MAX_TERM)]] = None
    total_epsilon: Omitted[Annotated[float, Field(strict=True, ge=0, le=MAX_TERM)]] = None

    def costs(self) -> "SiteReport":
        """Return what the site's noisy releases have cost, and nothing else of the report."""
        return SiteReport(**{name: value for name, value in self if name.endswith("epsilon")})


class SiteRound(SiteReport):
    """One site's part in a round; the figures of its report are absent where it shares no metrics.

    Attributes:
        samples: its training images.
        shared_classes: the classes whose prototype it shared.
        bytes_up, bytes_down: size of the arrays it sent and received.
    """

    samples: int
    shared_classes: tuple[Name, ...]
    bytes_up: int
    bytes_down: int


class SecureRecord(Strict):
    """A secure sum.

    Attributes:
        sites: whose vectors are in the total.
        dropped: the sites that took part, and whose vectors are not.
        bytes_up, bytes_down: of its messages, over all sites.
        seconds: wall time.
        error: why there is no total.
    """

    sites: tuple[Name, ...] = ()
    dropped: tuple[Name, ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    error: Omitted[str] = None


class RoundRecord(Strict):
    """One round.

    Attributes:
        round: number of the round, from 1.
        sites: the sites whose reply counted.
        refused: the sites whose reply did not, with the reason.
        limited: the sites that told of far more images than the others, and counted with fewer.
        seconds: wall time from sending the model to the new one.
        secure: the secure sum of its statistics, where the job has one.
        prototype_norm: mean length of the class means that were shared in this round; None where none were.
        statistics: see :data:`Statistics`.
    """

    round: int
    sites: dict[Name, SiteRound]
    refused: dict[Name, str] = {}
    limited: tuple[Name, ...] = ()
    seconds: float = 0.0
    secure: Omitted[SecureRecord] = None
    prototype_norm: Omitted[float] = None
    statistics: Statistics = {}


class HeadRecord(Strict):
    """A closed-form head.

    Attributes:
        round: completed rounds of the model that made the features.
        shrinkage, prior: of the head; without anybody's scatter there is no shrinkage, and the nearest class mean wins.
        sites: the sites whose statistics it is made of.
        refused: the sites whose statistics did not count, with the reason.
        limited: the sites that told of far more images of a class than the others, and count with fewer.
        classes: the classes it knows.
        bytes_up, bytes_down: size of the statistics that all sites sent, and of the models they received for it.
        seconds: wall time from sending the model to the head.
        evaluation: the model with this head.
        statistics: see :data:`Statistics`.
        kept: the files of what it is made of, by site, see :mod:`fedmr_med.server.kept_head`; None where the job keeps
            nothing.
    """

    round: int
    shrinkage: float | None
    prior: str
    sites: tuple[Name, ...]
    classes: tuple[Name, ...]
    refused: dict[Name, str] = {}
    limited: tuple[Name, ...] = ()
    bytes_up: int
    bytes_down: int = 0
    seconds: float = 0.0
    evaluation: Evaluation | None = None
    statistics: Statistics = {}
    kept: Omitted[dict[Name, str]] = None


class Tone(Strict):
    """What was measured of pictures, from 0 to 1: the mean, and the standard deviation between them."""

    mean: float
    deviation: float


class Held(Strict):
    """What one or more sites hold, as far as their policies allow; 0 is none, or too few to tell.

    Attributes:
        train, test: images of each class, in the order of the labels.
        edges: training images by the pixels of the picture's shorter edge: the least of a bin, and how many.
        subgroups: training images by column of the table and level.
        doubles: images that repeat the pixels of another one of the same site.
        measured: training images behind ``tones``.
        tones: brightness, contrast and colors.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    edges: dict[int, int] = {}
    subgroups: dict[Name, dict[Name, int]] = {}
    doubles: int = 0
    measured: int = 0
    tones: dict[str, Tone] = {}


class SurveyRecord(Strict):
    """What the sites hold.

    Attributes:
        sites: by site; empty where a secure sum gave the total alone.
        total: of all of them; None where nobody tells anything.
        silent: the sites that answered and tell nothing.
        refused: the sites whose answer did not count, with the reason.
        secure: the secure sum, where the job has one.
    """

    sites: dict[Name, Held]
    total: Held | None
    silent: tuple[Name, ...] = ()
    refused: dict[Name, str] = {}
    secure: Omitted[SecureRecord] = None


class Withdrawal(Strict):
    """A site that left a chain.

    Attributes:
        site: its name.
        time: when it was taken out, in UTC.
        round: completed rounds of the chain then.
        models: SHA-256 of the chain's model files that hold the site, first to last; the next one replaces the last.
        retrain_from: the round after which the weights hold something of the site, where it had trained them; None
            where the model is exactly that of a chain without it.
    """

    site: Name
    time: str
    round: int
    models: tuple[Sha256, ...] = ()
    retrain_from: int | None = None

    @property
    def text(self) -> str:
        """What a reader of the model has to know, in a sentence or two."""
        held = f" The model files that hold it have SHA-256 {', '.join(self.models)}." if self.models else ""
        if self.retrain_from is None:
            return f"{self.site} left on {self.time[:10]}: this model is exactly that of a chain without it.{held}"
        return (
            f"{self.site} left on {self.time[:10]}, and had trained the weights before: they still hold something of "
            f"it. To be rid of that, retrain from round {self.retrain_from}.{held}"
        )
