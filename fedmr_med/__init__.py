"""Federated learning on partially class-disjoint medical images: FedMR on NVIDIA FLARE.

The names below are the public interface. Each is imported when it is first used, so that ``import fedmr_med`` costs
nothing: the simulator starts a process per client task, and the command line answers ``--help`` without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedmr_med.version import __version__

if TYPE_CHECKING:
    from fedmr_med import losses, methods, models
    from fedmr_med.config import JobConfig, load_job
    from fedmr_med.errors import FedMRError
    from fedmr_med.evaluation.tables import load_results
    from fedmr_med.inference.predict import load_model
    from fedmr_med.losses import inter_class_loss, intra_class_loss
    from fedmr_med.models.job_network import build_network
    from fedmr_med.privacy.policy import SitePolicy
    from fedmr_med.prototypes import ClassSums, Prototypes
    from fedmr_med.recipes.recipe import FedMRRecipe, MethodRecipe
    from fedmr_med.report.document import write_report
    from fedmr_med.runner import Federation
    from fedmr_med.runner.comparison import bench
    from fedmr_med.runner.showcase.show import demo
    from fedmr_med.sites import SiteConfig, load_site

__all__ = [
    "ClassSums",
    "FedMRError",
    "FedMRRecipe",
    "Federation",
    "JobConfig",
    "MethodRecipe",
    "Prototypes",
    "SiteConfig",
    "SitePolicy",
    "__version__",
    "bench",
    "build_network",
    "demo",
    "inter_class_loss",
    "intra_class_loss",
    "load_job",
    "load_model",
    "load_results",
    "load_site",
    "losses",
    "methods",
    "models",
    "write_report",
]

_MODULES = ("losses", "methods", "models")
_HOMES = {
    "ClassSums": "prototypes",
    "FedMRError": "errors",
    "FedMRRecipe": "recipes.recipe",
    "Federation": "runner",
    "JobConfig": "config",
    "MethodRecipe": "recipes.recipe",
    "Prototypes": "prototypes",
    "SiteConfig": "sites",
    "SitePolicy": "privacy.policy",
    "bench": "runner.comparison",
    "build_network": "models.job_network",
    "demo": "runner.showcase.show",
    "inter_class_loss": "losses",
    "intra_class_loss": "losses",
    "load_job": "config",
    "load_model": "inference.predict",
    "load_results": "evaluation.tables",
    "load_site": "sites",
    "write_report": "report.document",
}


if not TYPE_CHECKING:  # a checker that sees this function would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value  # the next access does not come here
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
