"""Where a model looked."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedmr_med.data.image_files import ImageFiles
from fedmr_med.data.images import UnreadableImageError
from fedmr_med.errors import FedMRError
from fedmr_med.files import atomic_writer
from fedmr_med.inference.predict import Logits, Predictor

Picture = npt.NDArray[np.uint8]

_STRENGTH = 0.4  # of the colors over the picture


class GradCam:
    """Shows what the network saw of an image, and that colored where it supports the model's answer.

    Raises:
        FedMRError: the network has no convolution to look at.
    """

    def __init__(self, predictor: Predictor):
        self._module = Logits(predictor.network)
        if not any(isinstance(layer, nn.Conv2d) for layer in self._module.modules()):
            raise FedMRError(
                f"Grad-CAM needs a convolution, and {predictor.saved.job.model.name} has none.",
                code="model.no-convolution",
            )
        self._preparation = predictor.preparation

    def __call__(self, path: Path) -> tuple[Picture, Picture]:
        """Return the picture and its overlay, (h, w, 3) in BGR.

        Raises:
            UnreadableImageError: the image cannot be read.
        """
        import cv2

        image = self._preparation(path)[None]
        picture, support = seen(image[0].numpy()), contributions(self._module, image).relu()
        heat = cv2.resize((support / support.max().clamp_min(1e-12)).numpy(), image.shape[:1:-1])
        colors = cv2.applyColorMap((heat * 255).astype(np.uint8), cv2.COLORMAP_JET)
        return picture, ((1 - _STRENGTH) * picture + _STRENGTH * colors).round().astype(np.uint8)


def contributions(module: nn.Module, image: torch.Tensor) -> torch.Tensor:
    """Return what each place of the last feature map (h', w') adds to the logit of the answer.

    Gradient and activation are multiplied place by place (HiResCAM, Draelos & Carin, 2020). Where mean pooling and one
    linear layer follow, the places add up to the logit without its bias; elsewhere they are a hint. Grad-CAM's mean
    gradient over the map also colors places that no unit after a ReLU sees.

    Args:
        module: returns the logits (1, C).
        image: (1, channels, h, w), what it answers for.
    """
    maps: list[torch.Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: object) -> object:
        if isinstance(output, torch.Tensor) and output.ndim == image.ndim and output.shape[-1] > 1:
            maps.append(output)
            return output.clone()  # what follows may work in place
        return output

    hooks = [layer.register_forward_hook(keep) for layer in module.modules() if not list(layer.children())]
    try:
        with torch.enable_grad():
            logits = module(image.clone().requires_grad_())[0]
            (gradient,) = torch.autograd.grad(logits[logits.argmax()], maps[-1])
    finally:
        for hook in hooks:
            hook.remove()
    return (gradient * maps[-1]).sum(1)[0].detach()


def seen(image: npt.NDArray[np.float32]) -> Picture:
    """Return a network's input (channels, h, w) as a picture (h, w, 3) in BGR."""
    # The normalisation is per channel and linear, so the extremes of the picture are black and white enough.
    shown = (image - image.min()) / max(float(image.max() - image.min()), 1e-9)
    colors = np.broadcast_to(shown.transpose(1, 2, 0), (*shown.shape[1:], 3))
    picture: Picture = (colors[..., ::-1] * 255).round().astype(np.uint8)
    return picture


def write_overlays(predictor: Predictor, place: ImageFiles, folder: Path) -> Iterator[Path]:
    """Write the overlay of every readable image.

    Raises:
        FedMRError: the network has no convolution to look at.
    """
    import cv2

    look = GradCam(predictor)
    for name in place.names:
        try:
            _, overlay = look(place.root / name)
        except UnreadableImageError:
            continue  # the table says so
        target = folder / Path(name).with_suffix(".gradcam.png")
        with atomic_writer(target) as stream:
            stream.write(cv2.imencode(".png", overlay)[1].tobytes())  # it raises where it cannot
        yield target
