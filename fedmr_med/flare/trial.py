"""A trial of a job before anybody approves it: this site answers it once on generated pictures, and nothing leaves."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError, FedMRError
from fedmr_med.exchange.plan import plan
from fedmr_med.flare.audit import describe
from fedmr_med.flare.messages import to_shareable
from fedmr_med.privacy.refusals import code_of
from fedmr_med.server.state import initial_state, train_task, with_weights
from fedmr_med.site.engine import Site
from fedmr_med.sites import DemoSource, SiteConfig

_STEPS = 10
_TRIAL = "trial"


def try_out(job: JobConfig, settings: SiteConfig, weights: Path | None = None) -> Iterator[dict[str, Any]]:
    """Answer each kind of exchange of a job once; yield what would leave as lines like those of the site's journal.

    Policy and floors are the site's own. Its images, its state and its privacy budget are not touched. A round takes
    ten steps, whatever the job says.

    ``weights`` is the file that the job brings; None starts from the weights that its seed draws.

    Raises:
        ConfigError: the file does not hold the weights that the job names.
    """
    if weights is not None and (brought := with_weights(job, weights).model.weights) != job.model.weights:
        raise ConfigError(
            f"{weights} holds weights with SHA-256 {brought}; the job names {job.model.weights} (model.weights).",
            code="weights.other",
            key="--weights",
        )
    changes: dict[str, Any] = {"train": {"updates": _STEPS, "epochs": None}, "chain": None}
    short = job.override(changes | ({} if weights is not None else {"model": {"weights": None}}))
    with TemporaryDirectory() as folder:
        site = Site.simulated(_TRIAL, short, _on_demo(settings, short.model.weights, Path(folder)), Path(folder))
        state = initial_state(short, weights)
        for kind in dict.fromkeys(step.kind for step in plan(short)):
            about = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "job": _TRIAL, "task": kind}
            yield about | _answer(site, kind, train_task(state, short, _TRIAL), short.task.class_names)


def _on_demo(settings: SiteConfig, weights: str | None, folder: Path) -> SiteConfig:
    """Return the settings with generated pictures, and with weights that count as approved."""
    policy = settings.policy
    if policy.training is not None and weights is not None:
        floors = policy.training.model_copy(update={"weights": (weights,)})
        policy = policy.model_copy(update={"training": floors})
    source = DemoSource(source="demo", center=0)
    return settings.model_copy(update={"data": source, "cache": folder / "cache", "policy": policy})


def _answer(site: Site, kind: str, task: Any, class_names: tuple[str, ...]) -> dict[str, Any]:
    try:
        answer = site.exchange(kind, task)
    except FedMRError as e:
        return {"code": code_of(e), "reason": str(e), "bytes": 0, "parts": {}}
    return describe(to_shareable(answer, kind), lambda: class_names) | {"weights": site.weights}
