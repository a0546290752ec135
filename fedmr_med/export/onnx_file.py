"""ONNX: images in, logits out, for any number of images at a time."""

import json
import logging
import warnings
from pathlib import Path

import torch
from torch import nn

from fedmr_med.errors import FedMRError
from fedmr_med.export.source import Source
from fedmr_med.inference.predict import Logits
from fedmr_med.models.provenance import DEMO

OPSET = 18
FILE = Path("models", "model.onnx")


def write_onnx(source: Source, folder: Path) -> list[Path]:
    """Write ``models/model.onnx``: input ``image`` (batch, channels, size, size) float32, output ``logits`` (batch, C).

    Class names, transform, preparation, temperature and provenance are in the file's metadata. The preparation of raw
    pictures is a step before the file: docs/clinical.md has it in plain Pillow and numpy.

    Raises:
        FedMRError: the packages for it are not installed, or the network cannot be expressed.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as e:
        raise FedMRError(
            "ONNX needs further packages: pip install 'fedmr-med[export]'.", code="package.missing", key="onnx"
        ) from e
    saved, path = source.saved, folder / FILE
    task = saved.job.task
    path.parent.mkdir(parents=True, exist_ok=True)
    example = torch.zeros(2, task.channels, task.image_size, task.image_size)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            program = torch.onnx.export(
                _expressible(Logits(saved.network()).eval()),
                (example,),
                input_names=["image"],
                output_names=["logits"],
                opset_version=OPSET,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
            if program is None:
                raise RuntimeError("the exporter returned no model")
            program.save(str(path), external_data=False)
    except (RuntimeError, ValueError, torch.onnx.OnnxExporterError) as e:
        raise FedMRError(
            f"{saved.job.model.name} cannot be written as ONNX: {str(e).splitlines()[0]}.", code="export.onnx"
        ) from e
    model = onnx.load(str(path))
    facts = {
        "class_names": ",".join(task.class_names),
        "temperature": str(saved.temperature or 1.0),
        "transform": task.transform,
        "preparation": json.dumps(source.preparation),
        "provenance": json.dumps(source.provenance),
        "model_sha256": source.digest,
    } | ({"demo": DEMO} if source.is_demo else {})
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, str(path))
    return [path]


class _MaxPool(nn.Module):
    """Adaptive max pooling to a given size by plain slices: ONNX has none for sizes that do not divide the input's."""

    def __init__(self, size: tuple[int, int]):
        super().__init__()
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pool (n, c, h, w) to (n, c, *size)."""
        for axis, wanted in zip((-2, -1), self.size, strict=True):
            length = x.shape[axis]
            cells = ((i * length // wanted, -(-(i + 1) * length // wanted)) for i in range(wanted))
            x = torch.stack([x.narrow(axis, start, end - start).amax(axis) for start, end in cells], axis)
        return x


def _expressible(module: nn.Module) -> nn.Module:
    """Replace what ONNX cannot say by what it can, with the same result; ``module`` itself is changed."""
    for name, child in module.named_children():
        if isinstance(child, nn.AdaptiveMaxPool2d):
            size = child.output_size
            height, width = size if isinstance(size, tuple) else (size, size)
            if height is not None and width is not None:
                setattr(module, name, _MaxPool((height, width)))
        else:
            _expressible(child)
    return module
