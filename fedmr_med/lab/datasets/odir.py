"""ODIR-5K: photographs of the eye's fundus with 8 diagnoses, as a folder with a manifest."""

from fedmr_med.data.datasets.base import Dataset, Protocol
from fedmr_med.data.manifest import read_folder

# fmt: off
CLASS_NAMES = (
    "normal", "diabetes", "glaucoma", "cataract", "macular-degeneration", "hypertension", "myopia", "other",
)
# fmt: on

ODIR = Dataset(
    name="odir",
    class_names=CLASS_NAMES,
    image_size=200,
    kind="photographs",
    read=read_folder,
    content="its images and a manifest.csv (image, label, fold)",
    about="ODIR has a licence to accept at its own site.",
    # The paper says neither which network it uses nor for how many rounds.
    protocol=Protocol(
        "efficientnet_b0", "isic", 100, split="P4C3", model_options={"head": "fedmr", "pretrained": "none"}
    ),
)
