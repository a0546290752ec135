"""A training script of your own with FedMR's losses: Lightning, by FLARE's Client API.

Data and training are the script's; server, prototypes and each site's policy are the toolkit's. Run as it is, it
simulates two sites of which each has seen two of three classes, and one of which shares no prototypes.

    python examples/lightning_script.py
"""

import json
import sys
import tempfile
from pathlib import Path

import lightning
import torch
from nvflare.recipe import SimEnv
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedmr_med import ClassSums, FedMRRecipe
from fedmr_med.client import FedMRLoss, Task, get_site_name, init, is_running, receive, send
from fedmr_med.models import Network, wrap

CLASSES = ("a", "b", "c")
HELD = {"site-1": [0, 1], "site-2": [1, 2]}


class Net(nn.Sequential):
    """What the server builds as well."""

    def __init__(self, num_classes: int = len(CLASSES)):
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, num_classes))


def points(site: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return 60 points of the classes that a site holds."""
    generator = torch.Generator().manual_seed(HELD[site][0])
    labels = torch.tensor(HELD[site])[torch.randint(0, 2, (60,), generator=generator)]
    return torch.randn(60, 8, generator=generator) + 2 * nn.functional.one_hot(labels, 8), labels


class Round(lightning.LightningModule):
    """One local round."""

    def __init__(self, network: Network, task: Task, labels: torch.Tensor):
        super().__init__()
        self.network = network
        counts = torch.bincount(labels, minlength=len(CLASSES))
        self.loss = FedMRLoss.from_task(task, counts=counts, classifier=network.classifier)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        x, y = batch
        features, logits = self.network(x)
        return self.loss(features, logits, y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.SGD(self.network.parameters(), lr=0.1)


def local_round(network: Network, task: Task, x: torch.Tensor, y: torch.Tensor) -> ClassSums:
    """Train for one round; return the class sums of the features."""
    trainer = lightning.Trainer(
        max_epochs=20, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Round(network, task, y), DataLoader(TensorDataset(x, y), batch_size=60))
    with torch.no_grad():
        return ClassSums.from_features(network(x)[0], y, len(CLASSES))


def train() -> None:
    """What runs at a site."""
    init()
    network = wrap(Net())
    x, y = points(get_site_name())
    while is_running():
        task = receive()
        if task is None:
            break
        network.load_state_dict(task.model)
        send(network, class_sums=local_round(network, task, x, y))


def simulate(folder: str) -> None:
    """Run two sites in FLARE's simulator."""
    shares = {"share_prototypes": True, "min_class_count": 1, "training": None}
    recipe = FedMRRecipe(
        name="script",
        task={"class_names": CLASSES, "transform": "none", "channels": 1},
        model=Net,
        train_script=__file__,
        train_args="train",
        min_clients=2,
        num_rounds=2,
        sites={
            "site-1": {"data": {"source": "script"}, "policy": shares},
            "site-2": {"data": {"source": "script"}, "policy": {"training": None}},
        },
    )
    recipe.execute(SimEnv(num_clients=2, workspace_root=folder))
    results = json.loads(Path(folder, "script/server/chains/simulate_job/results.json").read_text())
    for number, record in enumerate(results["runs"][0]["history"]["rounds"], start=1):
        for site, part in record["sites"].items():
            print(f"round {number}: {site} shared {' '.join(part['shared_classes']) or 'no class'}")


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        with tempfile.TemporaryDirectory() as temporary:
            simulate(temporary)
