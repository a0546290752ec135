"""FedMR inside FLamby: a strategy like FLamby's own, on the loaders, model and loss that FLamby's scripts use.

Four centres with tables like those of Fed-Heart-Disease, made up here; the third has seen one class only. The model is
FLamby's: one linear layer, whose feature would be a patient's raw attributes, so FedMR puts a hidden layer before it.
Where FLamby is there, its FedAvg runs beside it.

    python docs/tutorials/inside_flamby.py [CHECKOUT]      # a clone of FLamby

FLamby's own ``fed_benchmark.py`` takes "FedMR" from its configuration after ``register()``. Behind the checkout, say
its options; DATASET=FOLDER names data in the place of FLamby's own configuration:

    python docs/tutorials/inside_flamby.py CHECKOUT fed_heart_disease=FOLDER --config-file-path my_config.json --seed 42

where ``my_config.json`` is FLamby's ``config_heart_disease.json`` with one strategy more:
``"FedMR": {"learning_rate": 0.001, "optimizer_class": "torch.optim.SGD", "variant": "replayed", "hidden": 16}``.
"""

import copy
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedmr_med.lab.flamby import FedMR, register
from fedmr_med.lab.flamby.checkout import find_strategies


def centre(number: int, size: int) -> DataLoader[Any]:
    """Return the training data of one centre."""
    generator = torch.Generator().manual_seed(number)
    labels = torch.randint(2, (size, 1), generator=generator).float()
    if number == 2:
        labels[:] = 1
    attributes = torch.randn(size, 13, generator=generator) + labels + 0.3 * number
    return DataLoader(TensorDataset(attributes, labels), batch_size=4, shuffle=True)


def main(checkout: Path | None) -> None:
    """Train by each strategy and print how many of all samples each model gets right."""
    loaders = [centre(number, size) for number, size in enumerate((60, 50, 20, 40))]
    x = torch.cat([loader.dataset.tensors[0] for loader in loaders])  # type: ignore[attr-defined]
    y = torch.cat([loader.dataset.tensors[1] for loader in loaders])  # type: ignore[attr-defined]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(13, 1), nn.Sigmoid())
    strategies: dict[str, Any] = {"FedMR": partial(FedMR, variant="replayed", hidden=16)}
    theirs, reason = find_strategies(checkout)
    if theirs is not None:
        strategies["FLamby's FedAvg"] = theirs.FedAvg
    else:
        print(f"without FLamby's own strategies: {reason}")
    for name, strategy in strategies.items():
        torch.manual_seed(0)
        trained = strategy(
            training_dataloaders=loaders,
            model=copy.deepcopy(model),
            loss=nn.BCELoss(),
            optimizer_class=torch.optim.SGD,
            learning_rate=0.05,
            num_updates=20,
            nrounds=5,
        ).run()[0]
        with torch.no_grad():
            right = ((trained(x.to(next(trained.parameters()).device)).cpu() > 0.5) == y.bool()).float().mean()
        print(f"{name}: {right:.2f} of the samples are right")


def benchmark(checkout: Path, arguments: list[str]) -> None:
    """Run FLamby's own benchmark, unmodified, with its options."""
    folders = [argument for argument in arguments if "=" in argument]
    register(checkout, {name: Path(folder) for name, folder in (argument.split("=", 1) for argument in folders)})
    script = checkout / "flamby" / "benchmarks" / "fed_benchmark.py"
    sys.argv = [str(script), *(argument for argument in arguments if argument not in folders)]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        benchmark(Path(sys.argv[1]), sys.argv[2:])
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
