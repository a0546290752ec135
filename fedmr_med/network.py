"""The network of a job, the same on the server and at every site, and the form of the replies that follows from it."""

from fedmr_med import methods, models
from fedmr_med.arrays import forms_of
from fedmr_med.backbone import Backbone
from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.models.classifier import ClassifierOnly
from fedmr_med.models.views import AveragedViews
from fedmr_med.seeding import torch_stream
from fedmr_med.wire.form import ReplyForm

_CLASSIFIER = "classifier."


def build_network(job: JobConfig, *, pretrained: bool = False) -> models.Network:
    """Build the network that the job trains: with ``model.freeze_backbone`` its classifier, over features.

    Only the server reads pretrained weights: the sites receive every weight from it.

    Raises:
        ConfigError: the network cannot be built, or does not go with the method or the wire.
    """
    method = methods.build(job.method)
    if method.exact_wire and job.federation.wire != "float32":
        raise ConfigError(
            f"federation.wire: {job.method.name} needs float32; what its sites keep and what the server adds up would "
            "drift apart by every round's rounding."
        )
    with torch_stream(job.seed, "initial model"):
        network = feature_network(job, pretrained=pretrained)
        if job.model.freeze_backbone:
            network = ClassifierOnly(network)
        adapted = method.adapt(network)
    if job.model.freeze_backbone and adapted is not network:
        raise ConfigError(f"model.freeze_backbone: {job.method.name} with these options trains more than a classifier.")
    if job.train.compile:
        adapted.compile()
    return adapted


def whole_network(job: JobConfig) -> models.Network:
    """Build the network from images to logits, the frozen part included."""
    if not job.model.freeze_backbone:
        return build_network(job)
    with torch_stream(job.seed, "initial model"):
        return feature_network(job)


def feature_network(job: JobConfig, *, pretrained: bool = False) -> models.Network:
    """Build the network as the job's model section describes it, before the method makes it its own."""
    options = dict(job.model.options)
    if not pretrained:
        options.pop("pretrained", None)
    network = models.build(job.model.name, num_classes=job.task.num_classes, in_channels=job.task.channels, **options)
    return network if job.model.views == "plain" else AveragedViews(network)


def backbone_of(job: JobConfig) -> Backbone | None:
    """Return the frozen part of the job's network, with its pretrained weights; None where all of it is trained."""
    if not job.model.freeze_backbone:
        return None
    with torch_stream(job.seed, "initial model"):
        arrays = models.state_arrays(feature_network(job, pretrained=True))
    return Backbone.of({name: array for name, array in arrays.items() if not name.startswith(_CLASSIFIER)})


def reply_form(job: JobConfig) -> ReplyForm:
    """Return the form of the job's replies."""
    network = build_network(job)
    arrays, names = models.state_arrays(network), models.parameter_names(network)
    parameters = {name: array for name, array in arrays.items() if name in names}
    return ReplyForm(
        class_names=job.task.class_names,
        feature_size=network.feature_size,
        statistics_size=min(job.head.projection or network.feature_size, network.feature_size),
        settings=job.digest(),
        model=forms_of(arrays),
        payload=methods.build(job.method).server().payload_forms(parameters),
        halved=job.federation.halved(names),
        secure=job.federation.sums_statistics,
        private=job.federation.private is not None,
    )
