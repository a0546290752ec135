"""HyperKvasir (Borgli et al., 2020): endoscopic photographs of 23 findings, as a folder with a manifest."""

from fedmr_med.data.datasets.base import Dataset, Protocol
from fedmr_med.data.manifest import read_folder

# fmt: off
CLASS_NAMES = (
    "barretts", "barretts-short-segment", "bbps-0-1", "bbps-2-3", "cecum", "dyed-lifted-polyps",
    "dyed-resection-margins", "esophagitis-a", "esophagitis-b-d", "hemorrhoids", "ileum", "impacted-stool",
    "polyps", "pylorus", "retroflex-rectum", "retroflex-stomach", "ulcerative-colitis-grade-0-1",
    "ulcerative-colitis-grade-1", "ulcerative-colitis-grade-1-2", "ulcerative-colitis-grade-2",
    "ulcerative-colitis-grade-2-3", "ulcerative-colitis-grade-3", "z-line",
)
# fmt: on

HYPERKVASIR = Dataset(
    name="hyperkvasir",
    class_names=CLASS_NAMES,
    image_size=200,
    kind="photographs",
    read=read_folder,
    content="its images and a manifest.csv (image, label, fold)",
    about="HyperKvasir has a licence to accept at its own site.",
    # The paper says neither which network it uses nor for how many rounds.
    protocol=Protocol(
        "efficientnet_b0", "isic", 100, split="P10C3", model_options={"head": "fedmr", "pretrained": "none"}
    ),
)
