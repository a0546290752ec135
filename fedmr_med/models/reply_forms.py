"""The forms of a job's replies and secure sums, which follow from its network."""

from fedmr_med import methods, models
from fedmr_med.arrays import Arrays, Forms, forms_of
from fedmr_med.config import JobConfig
from fedmr_med.models.job_network import build_network
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.fields import Field
from fedmr_med.statistics.model_sums import sum_fields
from fedmr_med.statistics.shared import layouts
from fedmr_med.wire.kinds import EXCHANGES
from fedmr_med.wire.messages import ReplyForm
from fedmr_med.wire.totals import SumForms


def reply_form(job: JobConfig) -> ReplyForm:
    """Return the form of the job's replies."""
    network = build_network(job)
    arrays, names = models.state_arrays(network), models.parameter_names(network)
    sums, (model, payload) = sum_forms(job, network), reply_arrays(job, arrays, names)
    return ReplyForm(
        class_names=job.task.class_names,
        levels=job.task.levels,
        feature_size=network.feature_size,
        statistics_size=sums.sizes.statistics_size,
        settings=job.digest(),
        model=model,
        payload=payload,
        halved=job.federation.halved(names),
        secure=job.federation.secure,
        sum_sizes=sums.vector_sizes,
        private=job.federation.private is not None,
        training_noise=job.train.noise,
        shared={kind: layouts(job.federation.statistics, kind, sums.sizes) for kind in EXCHANGES},
    )


def reply_arrays(job: JobConfig, model: Arrays, parameters: frozenset[str]) -> tuple[Forms, Forms]:
    """Return the forms of model and payload of a reply: of nothing where a secure sum takes them."""
    if job.federation.sums_models:
        return {}, {}
    trained = {name: array for name, array in model.items() if name in parameters}
    return forms_of(model), methods.build(job.method).server().payload_forms(trained)


def sum_forms(job: JobConfig, network: models.Network) -> SumForms:
    """Return the forms of the job's secure sums, given its network."""
    fields: dict[str, Field] = {}
    if job.federation.sums_models:
        fields = sum_fields(
            methods.build(job.method).server(), models.state_arrays(network), models.parameter_names(network)
        )
    return SumForms(statistic_sizes(job, network.feature_size), fields, job.federation.statistics)


def statistic_sizes(job: JobConfig, feature_size: int) -> Sizes:
    """Return the sizes of the job's statistics, given the length of its network's features."""
    projected = min(job.head.projection or feature_size, feature_size)
    chooses = job.train.validation > 0
    digits, levels = job.federation.secure_digits, len(job.task.levels)
    return Sizes(job.task.num_classes, feature_size, projected, digits, validation=chooses, levels=levels)
