"""FedMR as a FLARE recipe: one script for a simulation, a proof of concept on this machine, and a real federation.

Two hospitals of Fed-ISIC2019 on generated pictures; one of them shares neither prototypes nor metrics. With ``sim``
and ``poc`` the sites take the settings below; the hospitals of a real federation have their own.

    python docs/tutorials/from_simulation_to_federation.py sim [FOLDER]
    python docs/tutorials/from_simulation_to_federation.py poc
    python docs/tutorials/from_simulation_to_federation.py prod KIT USER     # a lead's startup kit and name
"""

import sys
import tempfile

from nvflare.recipe import PocEnv, ProdEnv, SimEnv
from nvflare.recipe.utils import add_experiment_tracking, add_final_global_evaluation

from fedmr_med import FedMRRecipe

# Cells of any size may leave, as the pictures are generated: so few images make no score otherwise.
OPEN = {"share_prototypes": True, "share_metrics": "per_class", "min_cell_count": 1, "training": None}
SITES = {
    "msk": {"data": {"source": "demo", "center": 4}, "policy": OPEN},
    # A policy shares nothing unless it says so; without `training: None` a site does not train for so few sites.
    "vienna-dias": {"data": {"source": "demo", "center": 5}, "policy": {"training": None}},
}


def recipe() -> FedMRRecipe:
    """Return two rounds of FedMR on small pictures."""
    return FedMRRecipe(
        name="isic_recipe",
        task="isic2019",
        demo=True,
        model="small_cnn",
        min_clients=2,
        num_rounds=2,
        train={"updates": 20, "batch_size": 16},
        sites=SITES,
        stop_cond="balanced_accuracy >= 0.99",
        settings={"task.image_size": 24},
    )


def main(where: str, *arguments: str) -> None:
    """Run it and say where the results are."""
    job = recipe()
    if where == "prod":
        kit, user = arguments
        env = ProdEnv(startup_kit_location=kit, username=user)
    elif where == "poc":
        env = PocEnv(clients=list(SITES))
    else:
        add_experiment_tracking(job, "tensorboard")
        add_final_global_evaluation(job)
        env = SimEnv(clients=list(SITES), workspace_root=arguments[0])
    run = job.execute(env)
    print("results:", run.get_result(clean_up=False))
    print("status:", run.get_status())


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] == ["poc"]:
        main(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main("sim", temporary)
