"""HyperKvasir (Borgli et al., 2020): endoscopic photographs of 23 findings, as a folder with a manifest."""

from dataclasses import replace

from fedmr_med.lab.datasets.odir import ODIR

# fmt: off
CLASS_NAMES = (
    "barretts", "barretts-short-segment", "bbps-0-1", "bbps-2-3", "cecum", "dyed-lifted-polyps",
    "dyed-resection-margins", "esophagitis-a", "esophagitis-b-d", "hemorrhoids", "ileum", "impacted-stool",
    "polyps", "pylorus", "retroflex-rectum", "retroflex-stomach", "ulcerative-colitis-grade-0-1",
    "ulcerative-colitis-grade-1", "ulcerative-colitis-grade-1-2", "ulcerative-colitis-grade-2",
    "ulcerative-colitis-grade-2-3", "ulcerative-colitis-grade-3", "z-line",
)
# fmt: on

HYPERKVASIR = replace(
    ODIR,
    name="hyperkvasir",
    class_names=CLASS_NAMES,
    about="HyperKvasir has a licence to accept at its own site.",
    protocol=replace(ODIR.protocol, split="P10C3"),
)
