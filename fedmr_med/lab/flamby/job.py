"""Jobs on FLamby's classification datasets with FLamby's own settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.jobs.benchmark import with_policies
from fedmr_med.jobs.catalog import own_job
from fedmr_med.lab.flamby.checkout import UPDATES, find_dataset, strategies_of
from fedmr_med.lab.flamby.datasets import known_set
from fedmr_med.sites import FlambySource, SiteConfig


def flamby_job(
    dataset: str,
    method: str,
    *,
    root: Path | None = None,
    flamby: Path | None = None,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> tuple[JobConfig, dict[str, SiteConfig]]:
    """Return a job on one of FLamby's datasets, and its sites: one for each centre, all of which share.

    Batch size and rounds are FLamby's; the local optimiser is SGD with the learning rate of FLamby's own FedAvg.

    Args:
        root: folder of the data; None takes what FLamby's own configuration says.
        flamby: a FLamby checkout; None takes ``FEDMR_MED_FLAMBY``, or the installed package.
        changes: other settings, as :func:`fedmr_med.jobs.changes.change` takes them.

    Raises:
        ConfigError: FLamby is not there, or without its configurations, or the dataset is not about classes.
    """
    names = known_set(dataset).class_names
    module = find_dataset(flamby, dataset)
    own = {
        "model.options": {"dataset": dataset, **({} if flamby is None else {"flamby": str(flamby.resolve())})},
        "train.batch_size": module.BATCH_SIZE,
        "train.lr": strategies_of(module)["FedAvg"]["learning_rate"],
        "train.momentum": 0.0,
        "train.weight_decay": 0.0,
        "train.updates": UPDATES,
        "federation.rounds": module.get_nb_max_rounds(UPDATES),
        "federation.min_sites": module.NUM_CLIENTS,
        "federation.max_deviation": None,
    }
    if dataset == "fed_isic2019":
        own |= {"loss.name": "focal", "loss.class_weights": "flamby"}
    task = {"dataset": dataset, "class_names": names, "transform": "none", "image_size": 200}
    job = own_job(f"{dataset}_{method}", task, method, "flamby_baseline", seed=seed, changes={**own, **(changes or {})})
    sources = {
        f"center-{center}": FlambySource(source="flamby", dataset=dataset, center=center, root=root, flamby=flamby)
        for center in range(module.NUM_CLIENTS)
    }
    return job, with_policies(sources, share=1.0, seed=seed)
