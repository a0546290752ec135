"""What the configurations of an exported bundle call."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.transforms import MapTransform

from fedmr_med.config import load_job
from fedmr_med.data.image_files import ImageReader, find_images
from fedmr_med.data.images import UnreadableImageError
from fedmr_med.evaluation.clinical import softmax
from fedmr_med.evaluation.results import RunResults, write_result
from fedmr_med.inference.evaluate import OwnTable, evaluate_here
from fedmr_med.inference.predict import Logits, Prediction, write_predictions
from fedmr_med.models import state_arrays
from fedmr_med.models.job_network import whole_network
from fedmr_med.models.model_file import SavedModel
from fedmr_med.models.provenance import Provenance

NAME, ERROR = "name", "error"


def listed(images: str) -> list[dict[str, str]]:
    """Return the items of a dataset: the images of a folder or a manifest."""
    place = find_images(Path(images))
    return [{"image": str(place.root / name), NAME: name, ERROR: ""} for name in place.names]


class ReadImaged(MapTransform):  # type: ignore[misc]
    """Reads image files as the sites do; one that cannot be read becomes zeros, and its reason stands beside it."""

    def __init__(self, keys: str | Sequence[str], job: str, prepared: bool = False):
        super().__init__(keys)
        self.prepare = ImageReader(load_job(Path(job)).task, prepared)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Replace paths by tensors (channels, size, size)."""
        item = dict(data)
        task = self.prepare.task
        for key in self.key_iterator(item):
            try:
                item[key] = self.prepare(Path(item[key]))
            except UnreadableImageError as e:
                item[key] = torch.zeros(task.channels, task.image_size, task.image_size)
                item[ERROR] = str(e)
        return item


@torch.no_grad()
def write_table(
    batches: Iterable[Mapping[str, Any]],
    inferer: Callable[[torch.Tensor, torch.nn.Module], torch.Tensor],
    network: torch.nn.Module,
    device: torch.device,
    output: str,
    class_names: Sequence[str],
    temperature: float,
) -> None:
    """Write a table of probabilities and logits, as ``fedmr-med predict`` does."""
    rows: list[Prediction] = []
    for batch in batches:
        logits = inferer(batch["image"].to(device), network).double().cpu().numpy()
        probabilities = softmax(logits / temperature)
        for row, (name, error) in enumerate(zip(batch[NAME], batch[ERROR], strict=True)):
            done = Prediction(name, np.asarray(logits[row]), np.asarray(probabilities[row]))
            rows.append(Prediction(name, error=error) if error else done)
    write_predictions(Path(output), rows, tuple(class_names), logits=True)


def write_evaluation(
    weights: Mapping[str, torch.Tensor],
    bundle_root: str,
    manifest: str,
    output: str,
    fold: str,
    round_number: int,
    prepared: bool,
) -> None:
    """Score the model on the images of a manifest and write results as ``fedmr-med evaluate`` does."""
    job = load_job(Path(bundle_root, "configs", "fedmr.yaml"))
    told = json.loads(Path(bundle_root, "configs", "metadata.json").read_text(encoding="utf-8"))["provenance"]
    provenance = None if told is None else Provenance.model_validate(told)
    network = Logits(whole_network(job))
    network.load_state_dict(weights)
    saved = SavedModel(state_arrays(network.network), job, round_number, {}, provenance)
    table = OwnTable.open(Path(manifest), job.task.class_names, fold, prepared=prepared)  # type: ignore[arg-type]
    result, predictions = evaluate_here(saved, table, "here")
    write_predictions(Path(output) / "predictions.csv", predictions, job.task.class_names, logits=True)
    write_result(Path(output) / "results.json", RunResults(runs=(result,)))
