"""Fed-ISIC2019: photographs of skin lesions at six hospitals, which hold their own data, as FLamby prepares it."""

from pathlib import Path

from fedmr_med.data.datasets.base import Dataset, Protocol, register
from fedmr_med.data.demo import DEMO
from fedmr_med.data.flamby_isic import CLASS_NAMES, HOSPITALS
from fedmr_med.sites import DataSource, DemoSource, FlambyIsicSource


def source(hospital: str, root: Path | None) -> DataSource:
    """Return where a hospital's images are: in the prepared folder ``root``, or drawn where ``root`` is ``demo``."""
    center = HOSPITALS.index(hospital)
    if root == DEMO:
        return DemoSource(source="demo", center=center)
    return FlambyIsicSource(source="flamby_isic", center=center, root=root)


ISIC2019 = register(
    Dataset(
        name="isic2019",
        short_name="isic",
        class_names=CLASS_NAMES,
        image_size=200,
        kind="photographs",
        site_source=source,
        sites=HOSPITALS,
        about="Fed-ISIC2019 has a licence to accept at its own site; `fedmr-med data prepare-isic` prepares it.",
        protocol=Protocol(
            "efficientnet_b0",
            "isic",
            rounds=9,
            clients=len(HOSPITALS),
            model_options={"head": "fedmr", "pretrained": "none"},
            # FLamby's, and a federation that goes on without two of its hospitals: a round waits half an hour for the
            # slower ones once four have answered, two hours in all.
            settings={
                "federation": {"min_sites": 4, "grace_seconds": 1800, "timeout_seconds": 7200},
                "task": {"preparation": {"version": 1, "edge": 224}},
                "loss": {"name": "focal", "gamma": 2.0, "class_weights": "flamby"},
                "train": {"batch_size": 64, "updates": 100, "epochs": None},
            },
            # A few minutes on two cores, from scratch. FLamby's class weights are made from the real class counts,
            # which the demo does not have; its pictures vary enough without augmentation.
            demo={
                "task": {"image_size": 40, "preparation": None},
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
        ),
    )
)
