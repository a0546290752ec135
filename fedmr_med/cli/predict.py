"""``fedmr-med predict``."""

from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import AllowCode, Json, Prepared, answer


def predict(
    model: Annotated[Path, typer.Argument(help="A model file, such as best_model.pt.")],
    images: Annotated[Path, typer.Argument(help="A folder of images, a manifest, or an image; DICOM too.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The table to write.")] = Path("predictions.csv"),
    calibrate: Annotated[bool, typer.Option(help="Divide logits by the model's temperature.")] = True,
    gradcam: Annotated[Path | None, typer.Option(help="Write Grad-CAM overlays into this folder.")] = None,
    prepared: Prepared = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
) -> None:
    """Write a probability per class for each image; one that cannot be read is named and left out."""
    from fedmr_med.data.prepared import find_images
    from fedmr_med.inference.predict import Predictor, write_predictions
    from fedmr_med.models.model_file import load_model
    from fedmr_med.models.provenance import DEMO

    saved = load_model(model, allow_code=allow_code)
    place = find_images(images)
    predictor = Predictor(saved, calibrated=calibrate, prepared=prepared)
    if saved.is_demo:
        typer.echo(DEMO, err=True)
    failed = write_predictions(out, predictor(place), predictor.class_names)
    for prediction in failed:
        typer.echo(f"cannot be read: {place.root / prediction.image}: {prediction.error}", err=True)
    overlays = 0
    if gradcam is not None:
        from fedmr_med.inference.gradcam import write_overlays

        overlays = sum(1 for _ in write_overlays(predictor, place, gradcam))
    total, temperature = len(place.names), predictor.temperature
    scale = "not calibrated" if temperature == 1 else f"calibrated with temperature {temperature:.2f}"
    answer(
        as_json,
        {"predictions": str(out), "images": total, "failed": len(failed), "overlays": overlays}
        | {"temperature": temperature},
        f"{total - len(failed)} of {total} images, {scale}: {out}",
        *([f"{overlays} overlays: {gradcam}"] if gradcam is not None else []),
    )
