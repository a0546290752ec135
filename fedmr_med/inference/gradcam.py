"""Where a model looked: Grad-CAM overlays by MONAI."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from fedmr_med.data.image_files import ImageFiles
from fedmr_med.data.images import UnreadableImageError
from fedmr_med.errors import FedMRError
from fedmr_med.files import atomic_writer
from fedmr_med.inference.predict import Logits, Predictor

_STRENGTH = 0.4  # of the colours over the picture


def write_overlays(predictor: Predictor, place: ImageFiles, folder: Path) -> Iterator[Path]:
    """Write one picture per readable image: what the network saw, coloured where it supports the model's answer.

    Raises:
        FedMRError: the network has no convolution to look at.
    """
    from monai.visualize import GradCAM

    module = Logits(predictor.network)
    layers = [name for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d)]
    if not layers:
        raise FedMRError(
            f"Grad-CAM needs a convolution, and {predictor.saved.job.model.name} has none.", code="model.no-convolution"
        )
    cam = GradCAM(nn_module=module, target_layers=layers[-1])
    for name in place.names:
        try:
            image = predictor.preparation(place.root / name)[None]
        except UnreadableImageError:
            continue  # the table says so
        heat = 1 - cam(x=image)[0, 0]  # MONAI maps the largest value to 0
        target = folder / Path(name).with_suffix(".gradcam.png")
        _write(target, image[0].numpy(), np.asarray(heat))
        yield target


def _write(path: Path, image: npt.NDArray[np.float32], heat: npt.NDArray[np.float32]) -> None:
    import cv2

    # The normalisation is per channel and linear, so the extremes of the picture are black and white enough.
    shown = (image - image.min()) / max(float(image.max() - image.min()), 1e-9)
    colour = np.broadcast_to(shown.transpose(1, 2, 0), (*shown.shape[1:], 3))
    map_ = cv2.applyColorMap((np.clip(heat, 0, 1) * 255).astype(np.uint8), cv2.COLORMAP_JET)
    mixed = (1 - _STRENGTH) * colour[..., ::-1] * 255 + _STRENGTH * map_
    _, content = cv2.imencode(".png", mixed.round().astype(np.uint8))  # it raises where it cannot
    with atomic_writer(path) as stream:
        stream.write(content.tobytes())
