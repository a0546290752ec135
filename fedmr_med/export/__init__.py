"""A model in the formats of other tools: one exporter per file, found by its name."""

from collections.abc import Callable
from pathlib import Path

from fedmr_med.export.bundle import write_bundle
from fedmr_med.export.card import write_card
from fedmr_med.export.onnx_file import write_onnx
from fedmr_med.export.source import Source
from fedmr_med.registry import Registry

__all__ = ["EXPORTERS", "Exporter", "Source"]

Exporter = Callable[[Source, Path], list[Path]]
"""Called with a model and the folder to write into; returns the files it wrote."""

EXPORTERS: Registry[Exporter] = Registry(
    "exporter", group="fedmr_med.exporters", fits=lambda name, item: callable(item)
)
EXPORTERS.add("bundle", write_bundle)
EXPORTERS.add("card", write_card)
EXPORTERS.add("onnx", write_onnx)
