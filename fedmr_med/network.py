"""The network of a job, the same on the server and at every site, and the form of the replies that follows from it."""

from fedmr_med import methods, models
from fedmr_med.arrays import forms_of
from fedmr_med.config import JobConfig
from fedmr_med.seeding import torch_stream
from fedmr_med.wire.form import ReplyForm


def build_network(job: JobConfig, *, pretrained: bool = False) -> models.Network:
    """Build the job's network.

    Only the server reads pretrained weights: the sites receive every weight from it.
    """
    options = dict(job.model.options)
    if not pretrained:
        options.pop("pretrained", None)
    with torch_stream(job.seed, "initial model"):
        network = models.build(
            job.model.name, num_classes=job.task.num_classes, in_channels=job.task.channels, **options
        )
        network = methods.build(job.method).adapt(network)
    if job.train.compile:
        network.compile()
    return network


def reply_form(job: JobConfig) -> ReplyForm:
    """Return the form of the job's replies."""
    network = build_network(job)
    arrays, names = models.state_arrays(network), models.parameter_names(network)
    parameters = {name: array for name, array in arrays.items() if name in names}
    return ReplyForm(
        class_names=job.task.class_names,
        feature_size=network.feature_size,
        settings=job.digest(),
        model=forms_of(arrays),
        payload=methods.build(job.method).server().payload_forms(parameters),
        halved=job.federation.halved(names),
    )
