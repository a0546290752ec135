"""FLARE's hello-pt job with FedAvgRecipe replaced: the classes are named, and nothing else is added."""

import sys

from model import SimpleNetwork
from nvflare.recipe import SimEnv

from fedmr_med import FedMRRecipe

if __name__ == "__main__":
    recipe = FedMRRecipe(
        name="hello-pt",
        min_clients=2,
        num_rounds=2,
        model=SimpleNetwork(),
        train_script="client.py",
        train_args="--batch_size 16",
        task={"class_names": [str(number) for number in range(10)], "image_size": 32},
    )
    recipe.execute(SimEnv(num_clients=2, num_threads=2, workspace_root=sys.argv[1]))
