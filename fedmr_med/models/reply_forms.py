"""The form of a job's replies and secure sums, which follows from its network."""

from functools import lru_cache

from fedmr_med import methods, models
from fedmr_med.arrays import Arrays, forms_of
from fedmr_med.config import PAIR, JobConfig
from fedmr_med.models.job_network import build_network
from fedmr_med.statistics.base import Sizes
from fedmr_med.statistics.catalog import layouts
from fedmr_med.statistics.model_sums import sum_fields
from fedmr_med.wire.forms import ReplyForm
from fedmr_med.wire.kinds import EXCHANGES


def reply_form(job: JobConfig) -> ReplyForm:
    """Return the form of the job's replies; its network is built once to see it."""
    return _reply_form(job.model_dump_json())


@lru_cache(maxsize=2)
def _reply_form(content: str) -> ReplyForm:
    job = JobConfig.model_validate_json(content)
    network = build_network(job)
    return form_of(job, models.state_arrays(network), models.parameter_names(network), network.feature_size)


def form_of(job: JobConfig, model: Arrays, parameters: frozenset[str], feature_size: int) -> ReplyForm:
    """Return the same, given weights and buffers, the names of those that are trained, and the length of a feature."""
    server, federation = methods.build(job.method).server(), job.federation
    trained = {name: array for name, array in model.items() if name in parameters}
    summed, sizes = federation.sums_models, statistic_sizes(job, feature_size)
    return ReplyForm(
        class_names=job.task.class_names,
        levels=job.task.levels,
        settings=job.digest(),
        layouts={kind: layouts(kind, sizes, federation.statistics) for kind in EXCHANGES},
        model={} if summed else forms_of(model),
        payload={} if summed else server.payload_forms(trained),
        models=sum_fields(server, model, parameters) if summed else {},
        halved=federation.halved(parameters),
        secure=federation.secure,
        private=federation.private is not None,
        training_noise=job.train.noise,
    )


def statistic_sizes(job: JobConfig, feature_size: int) -> Sizes:
    """Return the sizes of the job's statistics, given the length of its network's features."""
    projected = min(job.head.projection or feature_size, feature_size)
    chooses = job.train.validation > 0
    digits, levels = job.federation.secure_digits, len(job.task.levels)
    classes, pairs = job.task.num_classes, job.model.name == PAIR
    return Sizes(classes, feature_size, projected, digits, validation=chooses, levels=levels, pairs=pairs)
