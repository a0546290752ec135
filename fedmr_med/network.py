"""The network of a job: the same on the server and at every site."""

from fedmr_med import methods, models
from fedmr_med.config import JobConfig
from fedmr_med.seeding import torch_stream


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
