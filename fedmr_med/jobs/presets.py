"""Names under which the literature knows FedAvg with an optimiser at the server.

The optimiser is a setting of any job, ``federation.server``; these are rows for comparisons.
"""

from typing import Any

from fedmr_med.config import ServerConfig

PRESETS: dict[str, ServerConfig] = {
    "fedavgm": ServerConfig(optimizer="sgd", momentum=0.5),
    "fedadam": ServerConfig(optimizer="adam", lr=0.01),
    "fedyogi": ServerConfig(optimizer="yogi", lr=0.01),
    "fedadagrad": ServerConfig(optimizer="adagrad", lr=0.01),
}
"""FedAvgM (Hsu et al., 2019); FedAdam, FedYogi and FedAdagrad (Reddi et al., ICLR 2021)."""


def resolve(name: str) -> tuple[str, dict[str, Any]]:
    """Return the method behind a name, and the settings that come with it."""
    if name not in PRESETS:
        return name, {}
    return "fedavg", {"federation": {"server": PRESETS[name].model_dump(mode="json")}}
