"""The site policy: which prototypes and metrics a hospital lets out.

Defaults share nothing. The executor asks the policy before it computes anything that could leave. What a setting does
to what leaves is in :mod:`fedmr_med.privacy.mechanisms`; :data:`STRICTER` is the one list of what a job may tighten.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from inspect import isabstract
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from fedmr_med.privacy.accountant import PrivacyBudget
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.refusals import FloorError
from fedmr_med.registry import Registry
from fedmr_med.schema import Name, Strict, invalid

if TYPE_CHECKING:  # with them comes torch, which settings do not need
    import numpy as np
    import numpy.typing as npt

    from fedmr_med.privacy.mechanisms import Dominance

_LEAST_ROUNDING = 10
_MAX_SHARE = 0.5


class Sharing(Strict):
    """What may be shared beyond the model update and the number of training images: as a job asks for it at most.

    Attributes:
        share_prototypes: True, False, or the names of the classes whose prototypes may leave.
        min_class_count: a class with fewer local training images leaves neither sum nor count, and one with fewer test
            images takes no part in any score. 11 is the rule of CMS: no cell of 1 to 10.
        share_metrics: scores on the local test images, with training losses and times: ``none``; ``scalar``: accuracy,
            mean recall and the number of test images; ``per_class``: the confusion matrix of the classes that are
            shared; a site that opted out of all sends the scalars.
        allow_submit_model: whether the site answers ``submit_model``, which hands its local model out.
        approve: which jobs start by themselves (``fedmr-med site jobs`` lists all of them): ``always``: every job that
            keeps to this policy; ``new_settings``: only with settings that a person here has approved before;
            ``each``: only once a person here has approved this very chain.
        approval_minutes: how long a job waits for the person before it is refused; 0 refuses it at once.
    """

    share_prototypes: bool | tuple[Name, ...] = False
    min_class_count: int = Field(11, ge=1)
    share_metrics: Literal["none", "scalar", "per_class"] = "none"
    allow_submit_model: bool = False
    approve: Literal["always", "new_settings", "each"] = "always"
    approval_minutes: int = Field(0, ge=0, le=7 * 24 * 60)


class PolicyKey(Strict):
    """A key that an installed package adds to the site policy: the one field of a subclass, with its docstring.

    The package names the class in its entry points, under the name of the key::

        [project.entry-points."fedmr_med.policy"]
        max_rounds = "our_policy:MaxRounds"

    A hospital that sets the key answers only jobs that :meth:`check` takes. Without the package the key is unknown, and
    a policy with an unknown key lets nothing out.
    """

    @abstractmethod
    def check(self, job: Mapping[str, Any]) -> None:
        """Look at the settings of a job, nested like ``fedmr.yaml``, defaults included.

        Raises:
            PolicyError: the hospital does not answer this job.
        """

    @abstractmethod
    def sentence(self) -> str:
        """Say in plain words what the hospital demands."""


def _adds_a_key(name: str, item: Any) -> bool:
    concrete = isinstance(item, type) and issubclass(item, PolicyKey) and not isabstract(item)
    return concrete and tuple(item.model_fields) == (name,) and name not in SitePolicy.model_fields


POLICY_KEYS: Registry[type[PolicyKey]] = Registry("policy key", group="fedmr_med.policy", fits=_adds_a_key)
"""The keys that installed packages add."""


class SitePolicy(Sharing):
    """What a hospital shares, and what it demands of a job; nothing is shared by default.

    Attributes:
        share_scatter: whether the statistics for a closed-form head have the within-class scatter of the features of
            the shared classes, one matrix for all of them. Without it a site contributes its class means alone, and
            where no site shares it the head is that of the nearest class mean.
        round_samples: the number of training images, the site's weight in the mean, leaves rounded to a multiple of
            this, and without the images of classes too small to leave; 1 sends it as it is.
        max_share: the largest share that one image, or one patient where the table names them, has in what a feature
            says of a class, in sums without noise. A feature in which one has more does not leave for this class, and a
            class with too few patients not at all. None takes 0.5 in jobs that bring weights, and no limit else, as 1
            does: the rule costs accuracy where features are rare.
        min_cell_count: fewest test images in a cell of the confusion matrix. Rarer errors of a class are joined with
            its most frequent one, and score histograms stay then. A class counts only with no right answer or at least
            so many, and no wrong one or at least so many: small test folds and good models have no score. Set 1 where
            you may: it joins nothing.
        share_survey: what a survey may be told: ``none``; ``counts``: how many images there are of each class that is
            shared, of all classes where none is; ``images``: their sizes, brightness and colors besides, and how many
            of them are there twice. No number from 1 to ``min_class_count`` - 1 leaves.
        share_subgroups: whether images may be counted and scored by columns of the table that a job names, such as sex
            or device: True, False, or the columns.
        privacy: what its prototypes may tell about one image, over all jobs; None sets no limit. With it, class sums
            leave in jobs with ``federation.private`` only.
        training_privacy: what its model updates may tell about one image, over all jobs; None sets no limit. With it,
            the site trains for jobs with ``train.private`` only, and for none once the budget is used up. It needs
            ``round_samples`` of 10 or more.
        training: what a job must keep to, or the site does not train for it; None demands nothing.
    """

    share_scatter: bool = True
    round_samples: int = Field(10, ge=1, le=1000)
    max_share: float | None = Field(None, gt=0, le=1)
    min_cell_count: int = Field(11, ge=1)
    share_survey: Literal["none", "counts", "images"] = "none"
    share_subgroups: bool | tuple[Name, ...] = False
    privacy: PrivacyBudget | None = None
    training_privacy: PrivacyBudget | None = None
    training: TrainingFloors | None = TrainingFloors()

    model_config = ConfigDict(extra="allow")  # for the keys of packages; all others are refused below

    @classmethod
    def added_sections(cls) -> tuple[type[Strict], ...]:
        """Return the keys of installed packages."""
        return tuple(POLICY_KEYS.get(name) for name in POLICY_KEYS)

    @model_validator(mode="after")
    def _added_keys_are_valid(self) -> Self:
        extra = self.model_extra or {}
        for name, value in extra.items():
            section = POLICY_KEYS.get(name) if name in POLICY_KEYS else Strict  # which has no key, and refuses this one
            extra[name] = section.model_validate({name: value}).model_dump(mode="json")[name]
        return self

    @field_validator("round_samples")
    @classmethod
    def _rounds_enough(cls, value: int) -> int:
        if 1 < value < _LEAST_ROUNDING:
            raise invalid(
                f"give 1, or {_LEAST_ROUNDING} and more: less does not hide a count of 1 to 10", code="config.value"
            )
        return value

    @model_validator(mode="after")
    def _budget_has_neighbours(self) -> Self:
        if self.training_privacy is not None and self.round_samples == 1:
            raise invalid(
                "training_privacy needs a rounded number of images: with the exact one, one image more or less is told",
                code="config.conflict",
                key="round_samples",
            )
        return self

    def released_samples(self, counts: "npt.NDArray[np.int64]", class_names: tuple[str, ...]) -> int:
        """Return the number of training images as it may leave, given the local counts (C,).

        The images of shared classes, rounded up, and those of opted-out classes, rounded to the nearest multiple and
        at least to one. Classes that are shared but too small do not count. So for every class that is withheld with 1
        to 10 images there are data without any image of it that give the same number, whatever else is known.
        """
        if self.round_samples == 1:
            return int(counts.sum())
        chosen, multiple = self.chosen_classes(class_names), self.round_samples
        shared = int(counts[self.shareable_classes(counts, class_names)].sum())
        nearest = max(multiple, multiple * round(int(counts[~chosen].sum()) / multiple))
        return max(multiple, self.rounded_up(shared) + (0 if chosen.all() else nearest))

    def rounded_up(self, number: int) -> int:
        """Return a number of images as it may leave: the next multiple of ``round_samples``."""
        return -(-number // self.round_samples) * self.round_samples

    @property
    def added(self) -> tuple[PolicyKey, ...]:
        """The keys of installed packages that this policy sets."""
        return tuple(POLICY_KEYS.get(name)(**{name: value}) for name, value in (self.model_extra or {}).items())

    def check_job(self, job: Strict) -> None:
        """Let the keys of installed packages look at a job's settings, :class:`fedmr_med.config.JobConfig`.

        Raises:
            PolicyError: one of them refuses it.
        """
        for key in self.added:
            key.check(job.model_dump(mode="json"))

    def asks_about_weights(self, weights: str | None) -> bool:
        """Whether a person has to approve a job that brings these weights, whatever ``approve`` says."""
        return self.training is not None and self.training.asks_about(weights)

    def check_training_noise(self, noise: float) -> None:
        """Look at the noise of a job's local training, relative to the clip of a gradient; 0 where it has none.

        Raises:
            FloorError: the site demands more.
        """
        budget = self.training_privacy
        if budget is not None and noise < budget.min_noise:
            had = f"train.private.noise is {noise:g}" if noise else "the job has no train.private"
            raise FloorError("private", f"{had}; policy.training_privacy.min_noise asks for {budget.min_noise:g}.")

    @property
    def least_tested(self) -> int:
        """Fewest test images of a class that counts in a score, of a group in its histograms, and of its patients."""
        return max(self.min_class_count, self.min_cell_count)

    def dominance(self, *, brings_weights: bool) -> "Dominance | None":
        """Return what keeps single images from standing out in sums; None sets no limit.

        Who chose the weights that a job brings may have made a feature for one image.
        """
        from fedmr_med.privacy.mechanisms import Dominance

        share = self.max_share or (_MAX_SHARE if brings_weights else 1)
        return None if share == 1 else Dominance(share)

    def shareable_classes(
        self, counts: "npt.NDArray[np.int64]", class_names: tuple[str, ...]
    ) -> "npt.NDArray[np.bool_]":
        """Return a mask (C,) of the classes whose prototype may leave, given the local counts (C,)."""
        mask: npt.NDArray[np.bool_] = self.chosen_classes(class_names) & (counts >= self.min_class_count)
        return mask

    def chosen_classes(self, class_names: tuple[str, ...]) -> "npt.NDArray[np.bool_]":
        """Return a mask (C,) of the classes that are not opted out, however few images there are."""
        import numpy as np

        if isinstance(self.share_prototypes, bool):
            return np.full(len(class_names), self.share_prototypes)
        return np.array([name in self.share_prototypes for name in class_names])

    def told_classes(self, counts: "npt.NDArray[np.int64]", class_names: tuple[str, ...]) -> "npt.NDArray[np.bool_]":
        """Return a mask (C,) of the classes that a survey is told of, given the local counts (C,) of a fold."""
        chosen = self.chosen_classes(class_names)
        told = (chosen | ~chosen.any()) & (counts >= self.min_class_count) & (self.share_survey != "none")
        return told & (self.privacy is None)  # counts have no noise

    def told_levels(self, levels: tuple[tuple[str, str], ...]) -> "npt.NDArray[np.bool_]":
        """Return a mask (S,) of the levels of a job's subgroups that images may be counted and scored by."""
        import numpy as np

        shared = self.share_subgroups
        told = [shared if isinstance(shared, bool) else column in shared for column, _ in levels]
        return np.array(told, dtype=np.bool_)

    def restricted_by(self, other: Sharing) -> "SitePolicy":
        """Return the stricter of the two, setting by setting; what is not about sharing stays this policy's choice."""
        changes = {name: pick(getattr(self, name), getattr(other, name)) for name, pick in STRICTER.items()}
        return self.model_copy(update=changes)


def _fewer_classes(a: bool | tuple[str, ...], b: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return tuple(name for name in a if name in b)


def _lower(*levels: str) -> Callable[[str, str], str]:
    """Return what picks the one of two words that comes first in ``levels``."""
    return lambda a, b: min(a, b, key=levels.index)


STRICTER: dict[str, Callable[[Any, Any], Any]] = {
    "share_prototypes": _fewer_classes,
    "min_class_count": max,
    "share_metrics": _lower("none", "scalar", "per_class"),
    "allow_submit_model": lambda a, b: a and b,
    "approve": _lower("each", "new_settings", "always"),
    # How long a site's own people may take is for the site to say.
    "approval_minutes": lambda own, _: own,
}
"""Which of two values is the stricter, for every setting of :class:`Sharing`: the site's first, the job's second."""
