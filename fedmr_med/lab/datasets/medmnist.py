"""MedMNIST v2 (Yang et al., 2023): medical images of 28 pixels, one .npz for each set, read as it is published.

The sets here have one label per image and at least four classes. Training and test images are those of the official
split; its validation images are left out, so that scores can stand beside published ones.
"""

from pathlib import Path

import numpy as np

from fedmr_med.data.datasets.base import Dataset, Protocol, RemoteFile
from fedmr_med.lab.datasets.archives import Folds, arrays, find_all, npz_fold, reading

_PLACE = "https://zenodo.org/records/10519652/files/{}?download=1"
_ORGANS = (
    *("bladder", "femur left", "femur right", "heart", "kidney left", "kidney right", "liver", "lung left"),
    *("lung right", "pancreas", "spleen"),
)


def read_official(dataset: Dataset, place: Path) -> Folds | None:
    """Read the .npz of a set, or the one in a folder; see :data:`fedmr_med.lab.datasets.archives.Official`."""
    named = place.is_file() and place.name == dataset.files[0].name
    paths = [place] if named else find_all(dataset, place)
    if not paths:
        return None
    with reading(paths[0], dataset), np.load(paths[0], allow_pickle=False) as content:
        train, test = (npz_fold(content, f"{fold}_images", f"{fold}_labels") for fold in ("train", "test"))
    return train, test


def _record(name: str, md5: str, class_names: tuple[str, ...], *, channels: int = 3) -> Dataset:
    file = f"{name}.npz"
    return Dataset(
        name=name,
        class_names=class_names,
        image_size=28,
        channels=channels,
        read=arrays(read_official),
        files=(RemoteFile(file, _PLACE.format(file), md5),),
        # Two classes each, as in the paper's most class-disjoint splits.
        protocol=Protocol("resnet18", "plain", 100, split=f"P{(len(class_names) + 1) // 2}C2"),
    )


PATHMNIST = _record(
    "pathmnist",
    "a8b06965200029087d5bd730944a56c1",
    (
        *("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle", "normal colon mucosa"),
        *("cancer-associated stroma", "colorectal adenocarcinoma epithelium"),
    ),
)
DERMAMNIST = _record(
    "dermamnist",
    "0744692d530f8e62ec473284d019b0c7",
    (
        *("actinic keratoses", "basal cell carcinoma", "benign keratosis-like lesions", "dermatofibroma", "melanoma"),
        *("melanocytic nevi", "vascular lesions"),
    ),
)
OCTMNIST = _record(
    "octmnist",
    "c68d92d5b585d8d81f7112f81e2d0842",
    ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    channels=1,
)
BLOODMNIST = _record(
    "bloodmnist",
    "7053d0359d879ad8a5505303e11de1dc",
    (
        *("basophil", "eosinophil", "erythroblast", "immature granulocytes", "lymphocyte", "monocyte", "neutrophil"),
        "platelet",
    ),
)
TISSUEMNIST = _record(
    "tissuemnist",
    "ebe78ee8b05294063de985d821c1c34b",
    (
        *("collecting duct or connecting tubule", "distal convoluted tubule", "glomerular endothelial cells"),
        *("interstitial endothelial cells", "leukocytes", "podocytes", "proximal tubule segments"),
        "thick ascending limb",
    ),
    channels=1,
)
ORGANAMNIST = _record("organamnist", "68e3f8846a6bd62f0c9bf841c0d9eacc", _ORGANS, channels=1)
ORGANCMNIST = _record("organcmnist", "b9ceb9546e10131b32923c5bbeaea2b1", _ORGANS, channels=1)
ORGANSMNIST = _record("organsmnist", "9ab87b696fb54e2a387ebe992d6ed5f1", _ORGANS, channels=1)
