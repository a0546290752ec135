"""The network of a job, the same on the server and at every site."""

import torch
from torch import Tensor, nn

from fedmr_med import methods, models
from fedmr_med.arrays import Arrays, weights_digest
from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.network import Network
from fedmr_med.seeding import torch_stream
from fedmr_med.wire.messages import Backbone

_CLASSIFIER = "classifier."


def build_network(job: JobConfig, *, pretrained: bool = False) -> models.Network:
    """Build the network that the job trains: with ``model.freeze_backbone`` its classifier, over features.

    Only the server reads pretrained weights: the sites receive every weight from it.

    Raises:
        ConfigError: the network cannot be built, or does not go with the method or the wire.
    """
    if job.survey:
        return feature_network(job)  # nothing of any method looks at it
    method = methods.build(job.method)
    if method.exact_wire and job.federation.wire != "float32":
        raise ConfigError(
            f"federation.wire: {job.method.name} needs float32; what its sites keep and what the server adds up would "
            "drift apart by every round's rounding.",
            code="config.conflict",
            key="federation.wire",
        )
    if job.federation.sums_models and not method.adds_up:
        raise ConfigError(
            f"federation.secure: {job.method.name} needs every site's number of images, which all does not tell; take "
            "statistics.",
            code="config.conflict",
            key="federation.secure",
        )
    with torch_stream(job.seed, "initial model"):
        network = feature_network(job, pretrained=pretrained)
        if job.model.freeze_backbone:
            network = ClassifierOnly(network)
        adapted = method.adapt(network)
    if job.model.freeze_backbone and adapted is not network:
        raise ConfigError(
            f"model.freeze_backbone: {job.method.name} with these options trains more than a classifier.",
            code="config.conflict",
            key="model.freeze_backbone",
        )
    if job.train.private is not None:
        method.check_per_sample()
        if models.batch_norm_names(adapted.state_dict()):
            raise ConfigError(
                f"train.private: {job.model.name} has BatchNorm, which mixes the images of a batch and keeps "
                "statistics of them; say model.options.norm: group.",
                code="config.conflict",
                key="train.private",
            )
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


_HEIGHT, _WIDTH = -2, -1
FLIPS: tuple[tuple[int, ...], ...] = ((), (_WIDTH,), (_HEIGHT,), (_HEIGHT, _WIDTH))
"""The axes along which an image is mirrored, one entry per view."""


class AveragedViews(Network):
    """A network whose features in evaluation mode are the mean over several views of each image.

    In training mode it is the network itself: mirror images are then a matter of augmentation.

    Args:
        body: the network; its classifier moves to this one, so that it keeps its name.
    """

    def __init__(self, body: Network):
        super().__init__()
        self.feature_size = body.feature_size
        self.classifier = body.classifier
        body.classifier = nn.Identity()  # type: ignore[assignment]  # its place is taken by the one above
        self.body = body

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, channels, h, w)."""
        if self.training:
            features, dropped = self.body(x)
            return features, self.classifier(dropped)
        features = torch.stack([self.body(x.flip(axes) if axes else x)[0] for axes in FLIPS]).mean(0)
        return features, self.classifier(features)


class ClassifierOnly(Network):
    """What is left to train of a network whose backbone is frozen: its classifier, shared, over features."""

    def __init__(self, whole: Network):
        super().__init__()
        self.feature_size = whole.feature_size
        self.classifier = whole.classifier

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features (n, feature_size) themselves, and their logits."""
        return x, self.classifier(x)


_BACKBONE = "base_model."

PUBLIC = {
    ("efficientnet_lite0", "imagenet"): "62f5b0bf66bf20d1d933b5bba4cd82560a3cac566e89a48f794cfcebdac75004",
}
"""By network and ``model.options.pretrained``: the digest of the arrays that the file fills."""


def without_pretrained(arrays: Arrays) -> Arrays:
    """Return the arrays that no file of pretrained weights fills, whatever network wraps them."""
    return {name: array for name, array in arrays.items() if _BACKBONE not in name}


def are_public(job: JobConfig, arrays: Arrays) -> bool:
    """Whether the pretrained part of a network is the public one that the job names."""
    named = job.model.name, str(job.model.options["pretrained"])
    filled = {name.partition(_BACKBONE)[2]: array for name, array in arrays.items() if _BACKBONE in name}
    return PUBLIC.get(named) == weights_digest(filled)
