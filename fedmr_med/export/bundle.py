"""A MONAI Bundle: weights, configurations that ``python -m monai.bundle run`` executes, metadata and model card.

The network is TorchScript, so MONAI's tools load, check and export it without this toolkit. Reading images as the sites
do, and writing tables, is the toolkit's: it has to be installed where the bundle runs on images.
"""

import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedmr_med.data.transforms import normalisation
from fedmr_med.export.source import Source
from fedmr_med.files import atomic_writer, write_json, write_text
from fedmr_med.inference.predict import Logits
from fedmr_med.methods.label import label_of
from fedmr_med.schema import dump_yaml

SCHEMA = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"
VERSION = "0.1.0"

# What the two configurations have in common: MONAI resolves "@name" and runs "$expression", when it is asked for.
_COMMON: dict[str, Any] = {
    "imports": ["$import torch"],
    "bundle_root": ".",
    "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
    "network_def": "$torch.jit.load(@bundle_root + '/models/model.ts', map_location=@device)",
    "network": "$@network_def.to(@device)",
    "weights": "$torch.load(@bundle_root + '/models/model.pt', map_location=@device, weights_only=True)",
}


def write_bundle(source: Source, folder: Path) -> list[Path]:
    """Write configurations, metadata and weights."""
    saved = source.saved
    contents = {"metadata": _metadata(source), "inference": _inference(source), "evaluate": _evaluate(source)}
    for name, content in contents.items():
        write_json(folder / "configs" / f"{name}.json", content)
    write_text(folder / "configs" / "fedmr.yaml", dump_yaml(saved.job))
    import torch

    network = Logits(saved.network()).eval()
    with atomic_writer(folder / "models" / "model.pt") as stream:
        torch.save(network.state_dict(), stream)
    task = saved.job.task
    with atomic_writer(folder / "models" / "model.ts") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and what MONAI's tools exchange
        example = torch.zeros(2, task.channels, task.image_size, task.image_size)
        with torch.no_grad():
            torch.jit.save(torch.jit.trace(network, example), stream)  # type: ignore[no-untyped-call]
    names = (f"configs/{name}.json" for name in contents)
    return [folder / name for name in (*names, "configs/fedmr.yaml", "models/model.pt", "models/model.ts")]


def _inference(source: Source) -> dict[str, Any]:
    task = source.saved.job.task
    return _COMMON | {
        "dataset_dir": "$@bundle_root + '/images'",
        "output": "$@bundle_root + '/predictions.csv'",
        "class_names": list(task.class_names),
        "temperature": source.saved.temperature or 1.0,
        "prepared": False,
        "preprocessing": {
            "_target_": "Compose",
            "transforms": [
                {
                    "_target_": "fedmr_med.export.runtime.ReadImaged",
                    "keys": "image",
                    "job": "$@bundle_root + '/configs/fedmr.yaml'",
                    "prepared": "@prepared",
                },
            ],
        },
        "dataset": {
            "_target_": "Dataset",
            "data": {"_target_": "fedmr_med.export.runtime.listed", "images": "@dataset_dir"},
            "transform": "@preprocessing",
        },
        "dataloader": {"_target_": "DataLoader", "dataset": "@dataset", "batch_size": 16, "num_workers": 0},
        "inferer": {"_target_": "SimpleInferer"},
        "evaluator": {
            "_target_": "fedmr_med.export.runtime.write_table",
            "_mode_": "callable",
            "batches": "@dataloader",
            "inferer": "@inferer",
            "network": "@network",
            "device": "@device",
            "output": "@output",
            "class_names": "@class_names",
            "temperature": "@temperature",
        },
        "run": ["$@network.load_state_dict(@weights)", "$@network.eval()", "$@evaluator()"],
    }


def _evaluate(source: Source) -> dict[str, Any]:
    return _COMMON | {
        "manifest": "$@bundle_root + '/manifest.csv'",
        "output": "$@bundle_root + '/evaluation'",
        "fold": "test",
        "prepared": False,
        "evaluator": {
            "_target_": "fedmr_med.export.runtime.write_evaluation",
            "_mode_": "callable",
            "weights": "@weights",
            "bundle_root": "@bundle_root",
            "manifest": "@manifest",
            "output": "@output",
            "fold": "@fold",
            "round_number": source.saved.round,
            "prepared": "@prepared",
        },
        "run": ["$@evaluator()"],
    }


def _metadata(source: Source) -> dict[str, Any]:
    import monai
    import numpy
    import torch

    job = source.saved.job
    task = job.task
    classes = {str(number): name for number, name in enumerate(task.class_names)}
    channels = {"0": "grey"} if task.channels == 1 else {"0": "red", "1": "green", "2": "blue"}
    form, size = "RGB" if task.channels == 3 else "magnitude", [task.image_size, task.image_size]
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "changelog": {VERSION: f"after {source.saved.round} rounds of {label_of(job)}"},
        "monai_version": monai.__version__.split("+")[0],
        "pytorch_version": torch.__version__.split("+")[0],
        "numpy_version": numpy.__version__,
        "required_packages_version": {"fedmr-med": version("fedmr-med")},
        "name": job.name,
        "task": f"Classification of {task.dataset} images into {len(classes)} classes",
        "description": ("DEMO, trained on generated pictures. " if source.is_demo else "")
        + f"{job.model.name}, trained by hospitals together with {label_of(job)}. See docs/README.md.",
        "authors": "the hospitals of the federation",
        "copyright": "see docs/README.md",
        "intended_use": "Research. Not a medical device; see docs/README.md.",
        "model_sha256": source.digest,
        "provenance": source.provenance,
        "lineage": [left.model_dump(mode="json") for left in source.saved.lineage],
        "preprocessing": {
            "preparation": source.preparation,
            "transform": task.transform,
            "image_size": task.image_size,
            "normalisation": normalisation(task.transform, task.channels),
            "temperature": source.saved.temperature or 1.0,
        },
        "network_data_format": {
            "inputs": {"image": {"type": "image", "format": form, "modality": "n/a"} | _tensor(channels, size)},
            "outputs": {"pred": {"type": "logits", "format": "classes"} | _tensor(classes, [])},
        },
    }


def _tensor(channels: dict[str, str], shape: list[int]) -> dict[str, Any]:
    return {
        "num_channels": len(channels),
        "spatial_shape": shape,
        "dtype": "float32",
        "value_range": [],
        "is_patch_data": False,
        "channel_def": channels,
    }
