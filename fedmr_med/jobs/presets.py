"""Names for FedAvg with other settings, which comparisons and jobs take like the name of a method.

``fedavgm``, ``fedadam``, ``fedyogi`` and ``fedadagrad`` are what the literature calls FedAvg with an optimiser at the
server, a setting of any job. ``fedrs``, ``fedlc``, ``logit_adjustment``, ``fedlmd``, ``fedvls``, ``fedetf`` and
``fedgela`` are classifiers that know which classes a site lacks, options of any method
(:mod:`fedmr_med.methods.logits`). ``oneshot`` trains nothing: one exchange gives a frozen backbone the classifier that
pooled data would give it, see :mod:`fedmr_med.statistics.head`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

METHOD = "fedavg"
"""The method of every preset."""


@dataclass(frozen=True)
class Preset:
    """Settings that come with a name, nested like ``fedmr.yaml``.

    Attributes:
        settings: on top of the dataset's own.
        demo: on top of the dataset's own for its demo.
        small_images: further settings for datasets of small images, which a pretrained backbone takes scaled up; None
            where the dataset's own will do.
        pictures_only: whether it makes no sense for texts.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    demo: Mapping[str, Any] = field(default_factory=dict)
    small_images: Mapping[str, Any] | None = None
    pictures_only: bool = False

    @property
    def trains(self) -> bool:
        """Whether there are rounds of training."""
        return bool(self.settings.get("federation", {}).get("rounds", True))


def _server(**optimizer: Any) -> Preset:
    return Preset({"federation": {"server": optimizer}})


def _options(**options: Any) -> Preset:
    return Preset({"method": {"options": options}})


PRESETS: dict[str, Preset] = {
    "fedavgm": _server(optimizer="sgd", momentum=0.5),
    "fedadam": _server(optimizer="adam", lr=0.01),
    "fedyogi": _server(optimizer="yogi", lr=0.01),
    # Reddi et al. run it without momentum, as Adagrad is.
    "fedadagrad": _server(optimizer="adagrad", lr=0.01, betas=[0.0, 0.99]),
    "fedrs": _options(logits={"kind": "restricted"}),
    "fedlc": _options(logits={"kind": "calibrated"}),
    "logit_adjustment": _options(logits={"kind": "adjusted"}),
    "fedlmd": _options(logits={"kind": "lmd"}),
    "fedvls": _options(logits={"kind": "vls"}),
    "fedetf": _options(classifier="etf", logits={"kind": "adjusted", "vacant": "one"}),
    "fedgela": _options(classifier="etf", logits={"kind": "scaled"}),
    "oneshot": Preset(
        {
            "model": {
                "name": "efficientnet_lite0",
                "options": {"pretrained": "imagenet"},
                "freeze_backbone": True,
            },
            "federation": {"rounds": 0},
            "head": {"exchange": "last"},
        },
        # The demo asks for no further package: random features of a small network, which still tell its classes apart.
        demo={"model": {"name": "small_cnn", "options": {}}, "federation": {"rounds": 0}},
        small_images={"task": {"transform": "imagenet", "image_size": 96, "channels": 3}},
        pictures_only=True,
    ),
}
"""FedAvgM (Hsu et al., 2019); FedAdam, FedYogi and FedAdagrad (Reddi et al., ICLR 2021); missing-class classifiers; the
closed-form head alone."""


def own_changes(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that are for a preset: ``fedrs.logits.alpha`` is for ``fedrs`` alone, and loses its prefix."""
    own = {}
    for key, value in changes.items():
        first, _, rest = key.partition(".")
        if first not in PRESETS:
            own[key] = value
        elif first == name and rest:
            own[rest] = value
    return own


def resolve(name: str) -> tuple[str, Preset]:
    """Return the method behind a name, and the settings that come with it."""
    return (METHOD, PRESETS[name]) if name in PRESETS else (name, Preset())
