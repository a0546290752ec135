"""A comparison of methods, as one call from Python."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.tables import ResultTables

_ENGINE = "fedmr_med.lab.bench.compare"  # hospitals install the core without it


def bench(
    dataset: str,
    *,
    out: Path | str,
    methods: Sequence[str] = ("fedavg", "fedmr"),
    data: Path | str | None = None,
    split: str | None = None,
    seeds: Sequence[int] = (0,),
    model: str | None = None,
    rounds: int | None = None,
    epochs: int | None = None,
    clients: int | None = None,
    clients_per_round: int | None = None,
    fraction: float = 1.0,
    share: float = 1.0,
    settings: Mapping[str, JsonValue] | None = None,
    tune: int | None = None,
    workers: int | None = None,
) -> ResultTables:
    """Compare methods on a benchmark dataset, as ``fedmr-med bench`` does.

    Progress goes to standard error. A comparison that was stopped resumes with the same call.

    Args:
        dataset: its name: ``fmnist``, ``cifar10``, ``isic2019``, ...
        out: folder for the results and the report.
        methods: their names; every method is run with every seed.
        data: folder or file of the dataset; None reads ``FEDMR_MED_DATA``. ``demo`` for ``isic2019``.
        split: partition, such as ``P5C2``, ``dir0.5`` or ``iid``; None takes the paper's.
        seeds: of the runs.
        model, rounds, epochs: network, rounds and local epochs; None takes the paper's.
        clients: number of clients, if the partition does not name it.
        clients_per_round: clients drawn in each round; None takes all.
        fraction: share of the training data that is used.
        share: share of the clients that send class sums.
        settings: other settings by dotted key, such as ``{"train.lr": 0.05}``.
        tune: first choose each method's settings on held-out training data, with this seed.
        workers: runs in parallel; None uses the cores, 0 this process.

    Returns:
        The results. A run that fails says so in its ``error``.

    Raises:
        ConfigError: a setting is not valid, ``out`` holds another comparison, or the extra ``lab`` is not installed.
        DataError: data is missing or damaged.
    """
    content = {
        "dataset": dataset,
        "methods": tuple(methods),
        "data": data,
        "split": split,
        "seeds": tuple(seeds),
        "model": model,
        "rounds": rounds,
        "epochs": epochs,
        "clients": clients,
        "clients_per_round": clients_per_round,
        "fraction": fraction,
        "share": share,
        "settings": dict(settings or {}),
        "tune": tune,
    }
    try:
        return ResultTables.of(import_module(_ENGINE).compare_settings(content, Path(out), workers))
    except ModuleNotFoundError as e:
        raise ConfigError(f"bench needs {e.name}: pip install 'fedmr-med[lab]'", code="lab.missing") from e
