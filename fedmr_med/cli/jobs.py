"""``fedmr-med jobs``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmr_med.cli.options import Json, Settings, answer, names

app = typer.Typer(no_args_is_help=True)


@app.command()
def write(
    dataset: Annotated[
        str | None, typer.Option(help="Name of a dataset: isic2019, fmnist, cifar10, hyperkvasir, odir, ...")
    ] = None,
    method: Annotated[str, typer.Option(help="Name of the method.")] = "fedmr",
    split: Annotated[str | None, typer.Option(help="Partition: P5C2, dir0.5 or iid; default: the paper's.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients, if the partition does not name it.")] = None,
    model: Annotated[str | None, typer.Option(help="Name of the network; default: the paper's.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; default: the paper's.")] = None,
    share: Annotated[float, typer.Option(help="Sharing fraction: clients that send class sums.")] = 1.0,
    settings: Settings = None,
    name: Annotated[str | None, typer.Option(help="Name of the job and its folder.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write the job folders into.")] = Path("jobs"),
    sites: Annotated[Path, typer.Option(help="Folder with one folder per hospital, for isic2019.")] = Path("sites"),
    as_json: Json = False,
) -> None:
    """Write one job folder; without --dataset, one for each dataset of the paper."""
    from fedmr_med.jobs.catalog import any_job, paper_jobs
    from fedmr_med.jobs.changes import parse_settings
    from fedmr_med.jobs.folder import write_job

    if dataset is None:
        written = paper_jobs(sites)
    else:
        changes = parse_settings(settings or []) | ({"federation.rounds": rounds} if rounds else {})
        partition: dict[str, Any] = {"split": split, "clients": clients, "share": share, "sites": sites}
        written = [any_job(dataset, method, model=model, changes=changes, name=name, **partition)]
    for job, site_files in written:
        write_job(job, out / job.name, site_files)
    folders = [str(out / job.name) for job, _ in written]
    answer(as_json, {"folders": folders}, *folders)


@app.command()
def new(
    name: Annotated[str, typer.Option(help="Name of the job and its folder.")],
    sites: Annotated[Path, typer.Option(help="Folder with one folder per hospital, each with its site.yaml.")],
    classes: Annotated[
        str, typer.Option(help="What is to be told apart, comma-separated, in the order of the labels.")
    ],
    method: Annotated[str | None, typer.Option(help="Name of the method; default: that of the base, or fedmr.")] = None,
    base: Annotated[
        Path | None, typer.Option(help="Job folder whose settings to start from; default: Fed-ISIC2019's.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the network; default: that of the base.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; default: those of the base.")] = None,
    survey: Annotated[
        bool, typer.Option("--survey", help="Train nothing: ask what the hospitals hold, in one exchange.")
    ] = False,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="Folder to write the job folder into.")] = Path("jobs"),
    as_json: Json = False,
) -> None:
    """Write a job for your own hospitals and classes, ready for the simulator."""
    from fedmr_med.jobs.changes import parse_settings
    from fedmr_med.jobs.folder import carried, write_job
    from fedmr_med.jobs.new import SURVEY_CHANGES, new_job
    from fedmr_med.site.approval import amount_in_words

    changes = parse_settings(settings or [])
    changes |= {"federation.rounds": rounds} if rounds else {}
    changes |= {"model.name": model} if model else {}
    changes |= SURVEY_CHANGES if survey else {}
    job, configs = new_job(name, sites, names(classes), method=method, base=base, changes=changes)
    folder = out / job.name
    write_job(job, folder, carried(configs))
    key, what = ("share_survey", "tell nothing") if survey else ("share_metrics", "share no scores")
    silent = [site for site, config in configs.items() if getattr(config.policy, key) == "none"]
    if silent and not as_json:
        typer.echo(f"{what}, by policy.{key} in their site.yaml: {', '.join(silent)}", err=True)
    answer(
        as_json,
        {"folder": str(folder), "sites": list(configs), "without_scores": silent},
        f"{folder}: {'a survey' if survey else job.method.name} at {', '.join(configs)}, "
        f"{'of' if survey else 'telling apart'} {', '.join(job.task.class_names)}",
        "nothing is trained" if survey else f"a round at each hospital: {amount_in_words(job.train)}",
        f"Next: nvflare simulator {folder} -w runs/{job.name}",
    )


@app.command()
def extend(
    chain: Annotated[str, typer.Argument(help="Id of a finished one-shot chain whose job has head.keep.")],
    new_class: Annotated[str, typer.Option("--class", help="The class that nobody had.")],
    site: Annotated[str, typer.Option(help="The hospital that has its images; it alone is asked for statistics.")],
    kit: Annotated[
        Path | None, typer.Option(envvar="FEDMR_MED_KIT", help="Startup kit of the lead who submitted the chain.")
    ] = None,
    job: Annotated[Path | None, typer.Option(help="The chain's job folder, where there is no kit.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write the job folder into.")] = Path("jobs"),
    as_json: Json = False,
) -> None:
    """Write a job that gives a one-shot chain a class more: one exchange with one hospital, no training."""
    from fedmr_med.errors import ConfigError
    from fedmr_med.jobs.extend import extend_job

    kept = sorted((kit / "chains" / chain / "job").glob("*")) if kit and job is None else []
    source = job or next(iter(kept), None)
    if source is None:
        raise ConfigError(
            f"--kit or --job: name the kit the chain {chain} was submitted with, or its job folder.",
            code="config.missing",
            key="--kit",
        )
    folder = extend_job(source, out, chain=chain, new_class=new_class, site=site)
    answer(as_json, {"folder": str(folder)}, f"{folder}", f"Next: fedmr-med deploy submit {folder}")


@app.command()
def show(
    job: Annotated[Path, typer.Argument(help="Job folder, or the name of one in jobs/.")],
    as_json: Json = False,
) -> None:
    """Print every setting of a job: first what it sets, then what it leaves at the default."""
    from fedmr_med.jobs.folder import find_job
    from fedmr_med.jobs.show import shown
    from fedmr_med.schema import as_yaml

    config = find_job(job, "JOB")
    settings = shown(config)
    answer(
        as_json,
        {"digest": config.digest(), "settings": settings.settings, "set": settings.set},
        f"# Set by the job (digest {config.digest()})",
        as_yaml(settings.set),
        "---\n# Left at the default",
        as_yaml(settings.defaults).rstrip("\n"),
    )
