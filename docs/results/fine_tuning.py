"""``fedmr-med`` on Fed-ISIC2019 with the last layers of EfficientNet-Lite0 trained over maps that are made once.

The output of block 15, 64 pixels and no augmentation, takes a tenth of the time of the whole network. Everything else
is the toolkit. The maps stay in the folder MAPS, one file for each centre::

    python docs/results/fine_tuning.py MAPS bench --dataset isic2019 --model lite_tail --set task.transform=none ...
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedmr_med.cli import main
from fedmr_med.config import TaskConfig
from fedmr_med.data import flamby_isic, transforms
from fedmr_med.data.base import Fold, SiteData
from fedmr_med.data.loading import Batches
from fedmr_med.models import MODELS
from fedmr_med.models.efficientnet import EfficientNetLite0
from fedmr_med.network import Network
from fedmr_med.sites import FlambyIsicSource, SiteConfig

CUT, SIZE = 15, 64
Maps = npt.NDArray[np.float32]


def lite0() -> EfficientNetLite0:
    """Return the network with ImageNet's weights."""
    return EfficientNetLite0(8, 3, pretrained="imagenet", image_size=SIZE)


class LiteTail(Network):
    """The last block, the last convolution and the classifier of EfficientNet-Lite0."""

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        whole = lite0()
        base = whole.base_model
        self.blocks, self.conv, self.norm = nn.ModuleList(list(base._blocks)[CUT:]), base._conv_head, base._bn1
        self.feature_size, self.classifier = whole.feature_size, nn.Linear(whole.feature_size, num_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of maps (n, channels, height, width)."""
        for block in self.blocks:
            x = block(x)
        features = nn.functional.relu6(self.norm(self.conv(x))).mean((2, 3))
        return features, self.classifier(features)


@torch.no_grad()
def maps_of(images: Fold) -> Maps:
    """Return what the frozen layers make of images."""
    base, made = lite0().eval().base_model, []
    scale = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1) * 255 / 128
    shift = (torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1) * 255 - 127) / 128
    transform = transforms.build("isic", train=False, image_size=SIZE)
    for batch, _ in Batches(images, transform, batch_size=64).epoch("maps", shuffle=False):
        x = nn.functional.relu6(base._bn0(base._conv_stem(batch * scale + shift)))
        for block in list(base._blocks)[:CUT]:
            x = block(x)
        made.append(x.numpy())
    return np.concatenate(made)


def with_maps(folder: Path) -> None:
    """Let the sites of ISIC2019 read maps in the place of images."""
    read = flamby_isic.load_flamby_isic

    def load(source: FlambyIsicSource, task: TaskConfig, site: SiteConfig) -> SiteData:
        data = read(source, task, site)
        train, test = data.train, data.test
        path = folder / f"{source.center}.npy"
        if not path.exists():
            rows = np.arange(len(train) + len(test))
            np.save(path, maps_of(replace(train, picked=rows, labels=np.zeros_like(rows))))
        maps = np.load(path)
        made = (Fold(maps[fold.rows], fold.labels) for fold in (train, test))
        return replace(data, **dict(zip(("train", "test"), made, strict=True)))

    flamby_isic.load_flamby_isic = load


if __name__ == "__main__":
    with_maps(Path(sys.argv.pop(1)))
    MODELS.add("lite_tail", LiteTail)
    main()
