"""The Fed-ISIC2019 job and its six hospitals."""

from pathlib import Path

from fedmr_med.config import JobConfig
from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.coefficients import coefficients
from fedmr_med.sites import SITE_FILE

ISIC = "isic2019"


def isic_job(method: str) -> JobConfig:
    """Return the Fed-ISIC2019 job of a method, with FLamby's protocol and, on the demo, a budget for two CPU cores."""
    return JobConfig.model_validate(
        {
            "name": f"isic_{method}",
            "task": {
                "dataset": ISIC,
                "class_names": CLASS_NAMES,
                "image_size": 200,
                "transform": "isic",
            },
            "model": {"name": "efficientnet_b0", "options": {"head": "fedmr", "pretrained": "none"}},
            "method": {"name": method, "options": coefficients(ISIC, None, method)},
            "loss": {"name": "focal", "gamma": 2.0, "class_weights": "flamby"},
            "train": {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "batch_size": 64, "updates": 100},
            "federation": {"rounds": 9, "min_sites": 6},
            # A few minutes on two cores, from scratch. FLamby's class weights are made from the real class counts,
            # which the demo does not have; its pictures vary enough without augmentation.
            "demo": {
                "task": {"image_size": 40},
                "model": {"options": {"bn_momentum": 0.1, "dropout": 0.0, "drop_connect": 0.0}},
                "loss": {"name": "cross_entropy", "class_weights": "none"},
                "train": {
                    "optimizer": "adam",
                    "lr": 0.001,
                    "batch_size": 16,
                    "updates": None,
                    "epochs": 3,
                    "augment": False,
                },
                "federation": {"rounds": 7},
            },
        }
    )


def isic_sites(sites: Path) -> dict[str, str]:
    """Return the ``site.yaml`` of the six hospitals below a sites folder.

    Raises:
        ConfigError: one of them is missing.
    """
    content = {}
    for hospital in HOSPITALS:
        path = sites / hospital / SITE_FILE
        if not path.is_file():
            raise ConfigError(f"{path} does not exist; --sites must name a folder with one folder per hospital.")
        content[hospital] = path.read_text(encoding="utf-8")
    return content
