"""``fedmr-med evaluate``."""

from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import AllowCode, Json, Prepared, answer
from fedmr_med.errors import ConfigError


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file, such as best_model.pt.")],
    place: Annotated[
        Path | None, typer.Argument(help="A manifest, or a folder with a manifest.csv: score the model here, offline.")
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for results.json and predictions.csv.")] = Path(
        "evaluation"
    ),
    job: Annotated[
        Path | None, typer.Option(help="Write a FLARE job into this folder, in which all sites score the model.")
    ] = None,
    sites: Annotated[Path | None, typer.Option(help="With --job: a folder with one folder per site.")] = None,
    fold: Annotated[str, typer.Option(help="The images to score: test, train or all.")] = "test",
    site: Annotated[str, typer.Option(help="What results call this place.")] = "here",
    local_baseline: Annotated[
        bool, typer.Option("--local-baseline", help="Also train on the train fold alone, with the same budget.")
    ] = False,
    prepared: Prepared = False,
    allow_code: AllowCode = False,
    as_json: Json = False,
) -> None:
    """Score a model without training it: on your own images, or at all sites of a federation."""
    from fedmr_med.registry import check_known

    check_known(fold, ("test", "train", "all"), "--fold")
    if job is not None and place is None:
        _write_job(model, job, sites, allow_code)
        answer(as_json, {"folder": str(job)}, job)
        return
    if place is None or job is not None:
        raise ConfigError(
            "Give either a manifest to score the model here, or --job to score it at all sites.",
            code="config.conflict",
            key="--job",
        )
    from fedmr_med.evaluation.results import RunResults, versioned, write_result
    from fedmr_med.inference import evaluate as work
    from fedmr_med.inference.predict import write_predictions
    from fedmr_med.models.model_file import load_model
    from fedmr_med.models.provenance import DEMO
    from fedmr_med.report.document import write_report

    saved = load_model(model, allow_code=allow_code)
    table = work.OwnTable.open(place, saved.job.task.class_names, fold, prepared=prepared)  # type: ignore[arg-type]
    if saved.is_demo:
        typer.echo(DEMO, err=True)
    result, predictions = work.evaluate_here(saved, table, site)
    failed = write_predictions(out / "predictions.csv", predictions, saved.job.task.class_names)
    for prediction in failed:
        typer.echo(f"cannot be read: {table.manifest.parent / prediction.image}: {prediction.error}", err=True)
    runs = [result]
    if local_baseline:
        from fedmr_med.runner import alone

        runs.append(alone.local_baseline(saved, table, site, out / "baseline"))
    results = RunResults(runs=tuple(runs))
    write_result(out / "results.json", results)
    write_report([out / "results.json"], out / "report.html")
    written = f"results: {out / 'results.json'}, predictions: {out / 'predictions.csv'}, report: {out / 'report.html'}"
    answer(as_json, versioned(results), *(line for run in runs for line in work.lines(run)), written)


def _write_job(model: Path, folder: Path, sites: Path | None, allow_code: bool) -> None:
    from fedmr_med.inference.evaluate import evaluation_job
    from fedmr_med.jobs.folder import write_job
    from fedmr_med.models.model_file import load_model
    from fedmr_med.sites import SITE_FILE

    saved = load_model(model, allow_code=allow_code)
    found = {} if sites is None else {path.parent.name: path for path in sorted(sites.glob(f"*/{SITE_FILE}"))}
    if sites is not None and not found:
        raise ConfigError(f"{sites} has no folder with a {SITE_FILE}.", code="site.none", key="--sites")
    carried = {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    write_job(evaluation_job(saved, carried), folder, carried, initial_model=model)
