"""The form of what sites send in a job: of each reply, and of the vectors of secure sums. Both ends make it alike.

A secure sum has one vector of all fields of an exchange's statistics. What a site does not share is zero in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmr_med.arrays import Arrays, Forms, Vector, difference
from fedmr_med.errors import WireError
from fedmr_med.secure import Secure
from fedmr_med.statistics.fields import Field, Layout, Values
from fedmr_med.wire.agreement import check_settings
from fedmr_med.wire.kinds import EXCHANGES, TRAIN
from fedmr_med.wire.messages import SiteReply

MODELS = "models"
"""Name of the sums of trained models (:mod:`fedmr_med.statistics.model_sums`) in a secure sum."""


@dataclass(frozen=True)
class ReplyForm:
    """The form of a job's replies and secure sums.

    Attributes:
        class_names: the classes of the task.
        settings: digest of the job's settings.
        layouts: fields of the statistics by part, by exchange.
        model, payload: shape and type of each array by name; of none where models are summed securely.
        models: fields of the sums of trained models; of none where they are not.
        halved: the parameters of the model that are sent as float16.
        secure: what leaves in secure sums only.
        private: whether the job has noise on class sums.
        training_noise: noise on gradients relative to their clip; 0 where local training has none.
        levels: column and level of each subgroup.
    """

    class_names: tuple[str, ...]
    settings: str
    layouts: Mapping[str, Mapping[str, Layout]]
    model: Forms
    payload: Forms
    models: Mapping[str, Field]
    halved: frozenset[str]
    secure: Secure
    private: bool
    training_noise: float
    levels: tuple[tuple[str, str], ...]

    def check(self, reply: SiteReply) -> None:
        """Compare the settings and arrays of a reply to a train task with the form.

        Raises:
            WireError: the settings, or names, shapes or types of arrays differ.
        """
        check_settings(reply.settings, self.settings)
        self.check_model(reply.model)
        if problem := difference(reply.payload, self.payload):
            raise WireError(f"the method payload {problem}", code="wire.form", key="payload")

    def check_model(self, model: Arrays) -> None:
        """Compare a model with the form.

        Raises:
            WireError: names, shapes or types differ.
        """
        if problem := difference(model, self.model):
            raise WireError(f"the model {problem}", code="wire.form", key="model")

    def pack(self, release: str, values: Mapping[str, Values]) -> Vector:
        """Return what a site puts into a secure sum, by statistic, as one vector."""
        return self.layout(release).pack(_joined(values))

    def unpack(self, release: str, vector: Vector) -> dict[str, Values]:
        """Return a total by statistic."""
        values = self.layout(release).unpack(vector)
        return {
            part: {name: values[f"{part}/{name}"] for name in layout.fields}
            for part, layout in self._summed(release).items()
        }

    def layout(self, release: str) -> Layout:
        """Return all fields of the secure sum ``release``.

        Raises:
            WireError: there is no such kind of release.
        """
        return Layout(_joined({part: layout.fields for part, layout in self._summed(release).items()}))

    @property
    def vector_sizes(self) -> frozenset[int]:
        """The lengths of the vectors of all secure sums."""
        return frozenset(self.layout(kind).size for kind in EXCHANGES)

    def _summed(self, release: str) -> Mapping[str, Layout]:
        kind = release.partition("-")[0]
        if kind not in self.layouts:
            raise WireError("there is no such release", code="wire.form", key="release")
        models = {MODELS: Layout(self.models)} if kind == TRAIN and self.models else {}
        return {**self.layouts[kind], **models}


def _joined(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{part}/{name}": item for part, items in parts.items() for name, item in items.items()}
