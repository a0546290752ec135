"""Names, shapes and types of every array that a reply of a job may hold."""

from dataclasses import dataclass

from fedmr_med.arrays import Arrays, Forms, difference
from fedmr_med.errors import WireError
from fedmr_med.secure import Secure
from fedmr_med.wire.agreement import check_settings
from fedmr_med.wire.messages import SiteReply


@dataclass(frozen=True)
class ReplyForm:
    """The form of a job's replies, once they are decoded.

    Attributes:
        class_names: the classes of the task.
        feature_size: length of a prototype.
        settings: digest of the job's settings.
        model, payload: shape and type of each array by name.
        halved: the parameters of the model that are sent as float16.
        statistics_size: length of a class sum for a closed-form head.
        secure: what leaves in secure sums only; for ``all``, ``model`` and ``payload`` are empty.
        sum_sizes: lengths of the vectors of secure sums.
        private: whether the job has noise on class sums.
        training_noise: noise on gradients relative to their clip; 0 where local training has none.
    """

    class_names: tuple[str, ...]
    feature_size: int
    settings: str
    model: Forms
    payload: Forms
    halved: frozenset[str] = frozenset()
    statistics_size: int = 0
    secure: Secure = "none"
    sum_sizes: frozenset[int] = frozenset()
    private: bool = False
    training_noise: float = 0.0

    def check(self, reply: SiteReply) -> None:
        """Compare a reply's settings and arrays with the form.

        Raises:
            WireError: the settings, or names, shapes or types of arrays differ.
        """
        check_settings(reply.settings, self.settings)
        self.check_model(reply.model)
        if found := difference(reply.payload, self.payload):
            raise WireError(f"the method payload {found}", code="wire.form", key="payload")

    def check_model(self, model: Arrays) -> None:
        """Compare a model with the form.

        Raises:
            WireError: names, shapes or types differ.
        """
        if found := difference(model, self.model):
            raise WireError(f"the model {found}", code="wire.form", key="model")
