"""``fedmr-med bench``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmr_med.cli.options import Json, names
from fedmr_med.lab.cli.common import MaxHours, Out, Seeds, WithoutLeaked, end_with_failures, numbers, resumable


def bench(
    context: typer.Context,
    dataset: Annotated[
        str, typer.Option(help="Name of a dataset: fmnist, svhn, cifar10, cifar100, shakespeare, isic2019, ...")
    ],
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder or file of the dataset; default: FEDMR_MED_DATA/<dataset>. 'demo' for isic2019."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Partition: P5C2, dir0.5 or iid; default: the paper's.")] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Names of methods, comma-separated; 'all': the paper's eight. FedAvg with an optimiser at the server: "
            "fedavgm, fedadam, fedyogi, fedadagrad. FedAvg with a classifier for missing classes: fedrs, fedlc, "
            "logit_adjustment, fedlmd, fedvls, fedetf, fedgela. A frozen backbone and one exchange: oneshot."
        ),
    ] = "all",
    model: Annotated[str | None, typer.Option(help="Name of the network; default: the paper's.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; default: the paper's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Local epochs per round; default: the paper's 10.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients, if the partition does not name it.")] = None,
    clients_per_round: Annotated[int | None, typer.Option(help="Clients drawn in each round; default: all.")] = None,
    fraction: Annotated[float, typer.Option(help="Fraction of the training data to use.")] = 1.0,
    share: Annotated[float, typer.Option(help="Sharing fraction: clients that send class sums.")] = 1.0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, such as train.lr=0.05, mu1=0.1 or fedprox.mu=0.1."),
    ] = None,
    absent: Annotated[str, typer.Option(help="Hospitals of isic2019 that do not take part, comma-separated.")] = "",
    opted_out: Annotated[
        str, typer.Option(help="Hospitals of isic2019 that share no class statistics, comma-separated.")
    ] = "",
    without_leaked: WithoutLeaked = False,
    cross_validate: Annotated[
        int | None,
        typer.Option(
            metavar="PARTS", help="Cross-validate isic2019 by lesion: seed S trains on all parts but S and scores that."
        ),
    ] = None,
    validate: Annotated[
        float,
        typer.Option(help="Fraction of each client's training data to hold out and score on, not on the test set."),
    ] = 0.0,
    tune: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            help="First choose each method's settings, by six tries on held-out training data with this seed.",
        ),
    ] = None,
    tune_rounds: Annotated[int | None, typer.Option(help="Rounds of that search; default: as the comparison.")] = None,
    seeds: Seeds = "0",
    workers: Annotated[int | None, typer.Option(min=0, help="Runs in parallel; default: the number of cores.")] = None,
    parallel_clients: Annotated[
        int | None,
        typer.Option(min=1, help="Clients in parallel within each run; default: the cores that the runs leave idle."),
    ] = None,
    launcher: Annotated[
        str, typer.Option(help="Where runs are done: local, slurm (job array, by submitit) or ray (any cluster).")
    ] = "local",
    launcher_options: Annotated[
        list[str] | None,
        typer.Option(
            "--launcher-option",
            help="For slurm: partition=, gpus=, cpus=, memory_gb=, hours=, cluster=local; for ray: address=, cpus=.",
        ),
    ] = None,
    max_hours: MaxHours = None,
    as_json: Json = False,
) -> None:
    """Compare methods on a benchmark dataset over several seeds. The same command resumes after Ctrl-C or a crash."""
    from fedmr_med.evaluation.results import versioned
    from fedmr_med.jobs.changes import parse_settings
    from fedmr_med.lab.bench.compare import compare
    from fedmr_med.lab.bench.outputs import REPORT, RESULTS, screen_tables
    from fedmr_med.lab.bench.request import BenchRequest
    from fedmr_med.lab.comparison.launchers import Resources
    from fedmr_med.methods import PAPER_METHODS
    from fedmr_med.report.console import wide_console
    from fedmr_med.schema import validated

    # The other options have the names of the request's fields.
    content = {name: value for name, value in context.params.items() if name in BenchRequest.model_fields} | {
        "methods": PAPER_METHODS if methods == "all" else names(methods),
        "seeds": numbers(seeds),
        "settings": parse_settings(settings or []),
        "absent": names(absent),
        "opted_out": names(opted_out),
        "held_out": validate,
    }
    request = validated(BenchRequest, content, "bench")
    options = parse_settings(launcher_options or [], "--launcher-option")
    with resumable(max_hours):
        results = compare(request, out, Resources(launcher, workers, parallel_clients, options))
    if as_json:
        typer.echo(json.dumps(versioned(results)))
    else:
        console = wide_console(140)
        for table in screen_tables(results.runs, request.title):
            console.print(table)
        console.print(f"results: {out / RESULTS}\nreport:  {out / REPORT}", highlight=False)
    failed = [run for run in results.runs if run.error is not None]
    if failed:
        end_with_failures(f"{len(failed)} of {len(results.runs)} runs failed; the first: {failed[0].error}")
