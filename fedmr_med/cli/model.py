"""``fedmr-med predict``, ``evaluate`` and ``export``: what is done with the file of a model."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmr_med.cli.options import Json, answer
from fedmr_med.errors import ConfigError

if TYPE_CHECKING:
    from fedmr_med.inference.journal import UseJournal
    from fedmr_med.inference.predict import Prediction
    from fedmr_med.models.model_file import SavedModel

Model = Annotated[Path, typer.Argument(help="A model file, such as best_model.pt.")]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Build a network that the model file names by a dotted path: it runs that code."),
]
Prepared = Annotated[
    bool,
    typer.Option(
        "--prepared",
        help="The images are prepared already, as by `data prepare-isic`: do not do the model's preparation again.",
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        help="How often sets of classes are to hold the right one: 0.8, 0.9 or 0.95. The model is unsure where its set "
        "is not one class."
    ),
]
JournalFile = Annotated[
    Path | None, typer.Option(help="The journal of use; default: $XDG_STATE_HOME/fedmr_med/use.jsonl.")
]
NoJournal = Annotated[bool, typer.Option("--no-journal", help="Keep no line of what was answered.")]


def predict(
    model: Model,
    images: Annotated[Path, typer.Argument(help="A folder of images, a manifest, or an image; DICOM too.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The table to write.")] = Path("predictions.csv"),
    calibrate: Annotated[bool, typer.Option(help="Divide logits by the model's temperature.")] = True,
    page: Annotated[
        Path | None, typer.Option(help="Also write an HTML page with the images and where the network looked.")
    ] = None,
    gradcam: Annotated[Path | None, typer.Option(help="Write Grad-CAM overlays into this folder.")] = None,
    sr: Annotated[
        Path | None, typer.Option(help="Write a DICOM structured report for each DICOM image into this folder.")
    ] = None,
    coverage: Coverage = None,
    prepared: Prepared = False,
    journal: JournalFile = None,
    no_journal: NoJournal = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
) -> None:
    """Write a probability per class for each image; one that cannot be read is named and left out."""
    from fedmr_med.data.image_files import find_images
    from fedmr_med.inference.predict import UNSURE, Predictor, write_predictions

    if coverage is not None and sr is not None:
        raise ConfigError(
            "A structured report has no place for sets; give --coverage or --sr.", code="config.conflict", key="--sr"
        )
    book = _journal(journal, no_journal)
    saved, place = _load(model, allow_code), find_images(images)
    predictor = Predictor(saved, calibrated=calibrate, prepared=prepared, coverage=coverage)
    predictions = list(predictor(place))
    if book is not None:  # before any answer is handed out
        book.add("predict", model, place.root, predictor.class_names, predictions)
    failed = write_predictions(out, predictions, predictor.class_names)
    _name(failed, place.root)
    if page is not None:
        from fedmr_med.cli.cases import write_cases

        write_cases(page, predictor, place.root, predictions)
    overlays = 0
    if gradcam is not None:
        from fedmr_med.inference.gradcam import write_overlays

        overlays = sum(1 for _ in write_overlays(predictor, place, gradcam))
    reports: list[Path] = []
    if sr is not None:
        from fedmr_med.inference.structured_report import write_reports
        from fedmr_med.models.model_file import sha256_of

        reports, without = write_reports(predictor, sha256_of(model), place.root, predictions, sr)
        for image, reason in without.items():
            typer.echo(f"no structured report: {place.root / image}: {reason}", err=True)
    total, temperature = len(place.names), predictor.temperature
    values = {"predictions": str(out), "images": total, "failed": len(failed), "overlays": overlays}
    values |= {"reports": len(reports)}
    values |= {"page": str(page)} if page is not None else {}
    sure = sum(prediction.diagnosis not in ("", UNSURE) for prediction in predictions)
    values |= {"sure": sure, "in_every_set": list(predictor.everywhere)} if coverage is not None else {}
    scale = "not calibrated" if temperature == 1 else f"calibrated with temperature {temperature:.2f}"
    answer(
        as_json,
        values | {"temperature": temperature},
        f"{total - len(failed)} of {total} images, {scale}: {out}",
        *([f"a set of one class: {sure} images"] if coverage is not None else []),
        *([f"in every set: {' '.join(predictor.everywhere)} (too few scores)"] if predictor.everywhere else []),
        *([f"page: {page}"] if page is not None else []),
        *([f"{overlays} overlays: {gradcam}"] if gradcam is not None else []),
        *([f"{len(reports)} structured reports: {sr}"] if sr is not None else []),
    )


def evaluate(
    model: Model,
    place: Annotated[
        Path | None, typer.Argument(help="A manifest, or a folder with a manifest.csv: score the model here, offline.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for results.json, predictions.csv, report.html and missed.html.")
    ] = Path("evaluation"),
    job: Annotated[
        Path | None, typer.Option(help="Write a FLARE job into this folder, in which all sites score the model.")
    ] = None,
    sites: Annotated[Path | None, typer.Option(help="With --job: a folder with one folder per site.")] = None,
    fold: Annotated[str, typer.Option(help="The images to score: test, train or all.")] = "test",
    site: Annotated[str, typer.Option(help="What results call this place.")] = "here",
    subgroup: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=LEVEL,...",
            help="Score by a column of the table too, such as sex=female,male or age=0-39,40-59,60+; may be repeated. "
            "Default: those of the model's job.",
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another model file: say which model is better, on the very same images.")
    ] = None,
    local_baseline: Annotated[
        bool, typer.Option("--local-baseline", help="Also train on the train fold alone, with the same budget.")
    ] = False,
    coverage: Coverage = None,
    prepared: Prepared = False,
    journal: JournalFile = None,
    no_journal: NoJournal = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
) -> None:
    """Score a model without training it: on your own images, or at all sites of a federation."""
    from fedmr_med.inference import evaluate as work
    from fedmr_med.registry import check_known

    check_known(fold, ("test", "train", "all"), "--fold")
    if (job is None) == (place is None):
        raise ConfigError(
            "Give either a manifest to score the model here, or --job to score it at all sites.",
            code="config.conflict",
            key="--job",
        )
    if job is not None and coverage is not None:
        raise ConfigError(
            "Sets are counted on this machine alone; give a manifest with --coverage.",
            code="config.conflict",
            key="--coverage",
        )
    saved = _load(model, allow_code)
    if subgroup:
        saved = work.with_subgroups(saved, subgroup)
    if job is not None:
        from fedmr_med.inference.compare import pair_job
        from fedmr_med.jobs.folder import sites_below, write_job, write_job_with

        carried = {} if sites is None else sites_below(sites, "--sites")
        if against is None:
            write_job(work.evaluation_job(saved, carried), job, carried, initial_model=model)
        else:
            paired, arrays = pair_job(saved, _load(against, allow_code), carried)
            write_job_with(arrays, paired, job, carried)
        answer(as_json, {"folder": str(job)}, job)
        return
    from fedmr_med.cli.cases import write_missed
    from fedmr_med.evaluation.results import RunResults, versioned, write_result
    from fedmr_med.inference.predict import Predictor, write_predictions
    from fedmr_med.report.document import write_report

    book = _journal(journal, no_journal)
    names = saved.job.task.class_names
    table = work.OwnTable.open(place, names, fold, prepared=prepared)  # type: ignore[arg-type]
    result, predictions = work.evaluate_here(saved, table, site, coverage)
    root, truth = table.manifest.parent, {row.image: names[row.label] for row in table.rows}
    if book is not None:
        book.add("evaluate", model, root, names, predictions)
    _name(write_predictions(out / "predictions.csv", predictions, names), root)
    missed = write_missed(out / "missed.html", Predictor(saved, prepared=prepared), root, predictions, truth)
    runs = [result]
    if against is not None:
        from fedmr_med.inference.compare import against_here

        runs = list(against_here(result, predictions, saved, _load(against, allow_code), table, site))
    if local_baseline:
        from fedmr_med.runner.alone import local_baseline as train_alone

        runs.append(train_alone(saved, table, site, out / "baseline"))
    results = RunResults(runs=tuple(runs))
    write_result(out / "results.json", results)
    write_report([out / "results.json"], out / "report.html")
    written = f"results: {out / 'results.json'}, predictions: {out / 'predictions.csv'}, report: {out / 'report.html'}"
    wrong = f"{missed} images answered wrongly: {out / 'missed.html'}"
    held = None if coverage is None else work.SetsHeld.of(predictions, truth, coverage)
    answer(
        as_json,
        versioned(results) | ({"sets": held.model_dump(mode="json")} if held else {}),
        *(line for run in runs for line in work.lines(run)),
        *(held.lines() if held else []),
        wrong,
        written,
    )


def export(
    model: Model,
    out: Annotated[Path, typer.Option("-o", "--out", help="The bundle's folder.")] = Path("bundle"),
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write models/model.onnx.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="results.json of the run, for the model card; default: the one beside MODEL.")
    ] = None,
    also: Annotated[list[str] | None, typer.Option(help="Another installed exporter, by its name.")] = None,
    allow_code: AllowCode = False,
    as_json: Json = False,
) -> None:
    """Write a model as a MONAI Bundle with its model card, and as ONNX."""
    from fedmr_med.export import EXPORTERS, Source

    # ONNX first: where its packages are missing, nothing is written.
    names = dict.fromkeys([*(["onnx"] if onnx else []), "bundle", "card", *(also or [])])
    exporters = [EXPORTERS.get(name, "--also") for name in names]
    source = Source.open(model, results, allow_code=allow_code)
    written = [path for exporter in exporters for path in exporter(source, out)]
    answer(as_json, {"files": [str(path) for path in written]}, *written)


def _load(model: Path, allow_code: bool) -> "SavedModel":
    """Read a model file, and say so where its figures are of generated pictures."""
    from fedmr_med.models.model_file import load_model
    from fedmr_med.models.provenance import DEMO

    saved = load_model(model, allow_code=allow_code)
    if saved.is_demo:
        typer.echo(DEMO, err=True)
    return saved


def _journal(path: Path | None, off: bool) -> "UseJournal | None":
    from fedmr_med.inference.journal import UseJournal

    book = None if off else UseJournal.open(path)
    if book is not None:
        typer.echo(f"journal of use: {book.path}", err=True)
    return book


def _name(failed: Iterable["Prediction"], folder: Path) -> None:
    for prediction in failed:
        typer.echo(f"cannot be read: {folder / prediction.image}: {prediction.error}", err=True)
