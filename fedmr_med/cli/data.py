"""``fedmr-med data``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmr_med.cli.options import Json, answer, judge, names

app = typer.Typer(no_args_is_help=True)

SplitFile = Annotated[Path | None, typer.Option(help="FLamby's train_test_split; default: the one in the folder.")]
Flamby = Annotated[Path | None, typer.Option(help="A FLamby checkout, which holds train_test_split.")]

_LISTED = 10


@app.command()
def prepare_isic(
    source: Annotated[Path, typer.Argument(help="Folder that holds ISIC_2019_Training_Input; it is not changed.")],
    target: Annotated[Path, typer.Argument(help="Folder that gets ISIC_2019_Training_Input_preprocessed.")],
    edge: Annotated[int, typer.Option(min=1, help="Shorter edge of the prepared images, in pixels.")] = 224,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes to use; default: the number of cores.")] = None,
    as_json: Json = False,
) -> None:
    """Prepare ISIC2019 as FLamby does. The same command resumes after Ctrl-C or a crash."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fedmr_med.data.prepare_isic import prepare_isic as prepare
    from fedmr_med.process import available_cores

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("Preparing", total=None)
        report = prepare(
            source,
            target,
            edge=edge,
            workers=workers or available_cores(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for line in report.failed[:_LISTED]:
        typer.echo(f"cannot be read: {line}", err=True)
    if len(report.failed) > _LISTED:
        typer.echo(f"and {len(report.failed) - _LISTED} more", err=True)
    values = {"folder": str(report.folder), "written": report.written, "kept": report.kept, "failed": report.failed}
    counts = f"{report.written} images prepared, {report.kept} were there, {len(report.failed)} cannot be read"
    answer(as_json, values, f"{counts}: {report.folder}", ok=not report.failed)


@app.command()
def split_sites(
    out: Annotated[Path, typer.Argument(help="Gets one folder per hospital.")],
    root: Annotated[Path | None, typer.Option(help="The prepared folder; default: FEDMR_MED_ISIC.")] = None,
    split_file: SplitFile = None,
    flamby: Flamby = None,
    lesions: Annotated[
        Path | None, typer.Option(help="HAM10000_metadata.csv, for the group column; default: the one in the folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Divide prepared ISIC2019 into one folder per hospital: manifest, images and a site file that shares nothing."""
    from fedmr_med.data.split_sites import split_sites as split

    report = split(root, out, split_file=split_file, flamby=flamby, lesions=lesions)
    lines = [f"{out / name}: {images} images" for name, images in report.sites.items()]
    answer(as_json, {"folder": str(out), "sites": report.sites, "absent": report.absent}, *lines)
    if report.absent and not as_json:
        typer.echo(f"no images of: {', '.join(report.absent)}", err=True)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A hospital's folder, a folder of hospitals, or a manifest.")],
    classes: Annotated[str, typer.Option(help="Classes of the job, comma-separated; default: the table's own.")] = "",
    as_json: Json = False,
) -> None:
    """Read every row and open every image of a hospital's folder; exit code 1 if anything has to be fixed."""
    from fedmr_med.data.check import check_folder

    judge(as_json, "findings", check_folder(folder, names(classes)), lambda one: f"{one.site}: {one.message}")


@app.command()
def manifest(
    folder: Annotated[Path, typer.Argument(help="Folder of images, one folder per class: FOLDER/.../CLASS/IMAGE.")],
    table: Annotated[
        Path | None, typer.Option(help="A table of images and labels, instead of one folder per class.")
    ] = None,
    image_column: Annotated[
        str | None, typer.Option(help="Column of the table that names the files; default: image, file, path, ...")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the table with the classes; default: label, diagnosis, dx, ...")
    ] = None,
    split: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of each class to test on; at least 11 images, where there are 22."),
    ] = 0.2,
    group_by: Annotated[
        str | None,
        typer.Option(
            help="Column of the table, or level of folders (patient: the folder above the class), to keep whole; none "
            "for nothing. Default: the columns that name patients or lesions, or DICOM's PatientID."
        ),
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out rows of the table without an image file.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="What the new site.yaml shares and demands, such as share_metrics=per_class; default: nothing is "
            "shared. May be repeated.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a manifest that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write manifest.csv and, where there is none, site.yaml for a folder of images."""
    from fedmr_med.data.make_manifest import make_manifest

    chosen: dict[str, Any] = {}
    if policy:
        from fedmr_med.jobs.changes import in_sections, parse_settings

        chosen = in_sections(parse_settings(policy, "--policy"))
    written = make_manifest(
        folder,
        table=table,
        image_column=image_column,
        label_column=label_column,
        split=split,
        group_by=group_by,
        skip_missing=skip_missing,
        policy=chosen,
        seed=seed,
        force=force,
    )
    shares = "; see `policy` in it" if policy else ": shares nothing yet; see `policy` in it"
    answer(
        as_json,
        written.as_values(),
        f"{written.path}: {written.train} train and {written.test} test images of {', '.join(written.classes)}",
        written.how,
        *(f"note {warning}" for warning in written.warnings),
        *([f"{written.site_file}{shares}"] if written.site_file else []),
        f"Next: fedmr-med data check {folder}",
    )


@app.command()
def describe(
    place: Annotated[str, typer.Argument(help="'demo', a folder of Fed-ISIC2019, or a folder of sites.")],
    html: Annotated[Path | None, typer.Option(help="Also draw the table, into this HTML file.")] = None,
    classes: Annotated[str, typer.Option(help="Classes, comma-separated; default: ISIC2019's.")] = "",
    split_file: SplitFile = None,
    flamby: Flamby = None,
    quick: Annotated[bool, typer.Option("--quick", help="Count the rows of the tables alone; open no image.")] = False,
    as_json: Json = False,
) -> None:
    """Show how many images of which class each site holds, which cannot be read, and which are there twice."""
    from rich.console import Console

    from fedmr_med.data.describe import describe as count
    from fedmr_med.data.flamby_isic import CLASS_NAMES
    from fedmr_med.report.class_counts import site_tables, unreadable_lines, write_counts

    chosen = names(classes) or CLASS_NAMES
    description = count(place, class_names=chosen, split_file=split_file, flamby=flamby, quick=quick)
    if html:
        write_counts(description, html)
        typer.echo(f"Drawn to {html}.", err=True)
    if not as_json:
        Console().print(site_tables(description))
    answer(as_json, description.as_json(), *unreadable_lines(description))


@app.command()
def clean_cache(
    cache: Annotated[
        Path | None, typer.Option(help="A site's cache; default: FEDMR_MED_CACHE, then the user's.")
    ] = None,
    older_than: Annotated[float, typer.Option(min=0, help="Only what was not used for so many days.")] = 0,
    as_json: Json = False,
) -> None:
    """Remove decoded images and features that nobody has open; they are made again when they are needed."""
    from fedmr_med.data.cache import KINDS, clean

    removed: dict[str, tuple[int, int]] = {kind: clean(kind, cache, older_than_days=older_than) for kind in KINDS}
    values = {kind: {"entries": count, "bytes": size} for kind, (count, size) in removed.items()}
    lines = [f"{kind}: {count} entries removed, {size / 1e6:.1f} MB" for kind, (count, size) in removed.items()]
    answer(as_json, values, *lines)
