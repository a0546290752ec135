"""What ``fedmr-med flamby compare`` is asked for: FLamby's protocol, and what is changed of it."""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.data.datasets.isic2019 import ISIC2019
from fedmr_med.data.demo import DEMO
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.lab.flamby.checkout import UPDATES, published
from fedmr_med.lab.flamby.datasets import known_set
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.registry import check_known
from fedmr_med.schema import Strict, invalid
from fedmr_med.sites import DemoSource, FlambyIsicSource, SiteConfig

ISIC, LOCAL, POOLED = "fed_isic2019", "local", "pooled"
Buffers = Literal["average", "first"]

# A budget for the demo on a CPU. Of the settings for the demo only those without which it does not learn.
_DEMO = {"rounds": 3, "updates": 10, "image_size": 32, "batch": 16}
_DEMO_SETTINGS = {
    "model": ISIC2019.protocol.demo["model"],
    "loss": ISIC2019.protocol.demo["loss"],
    "train": {"augment": False},
}

OURS: dict[str, dict[str, Any]] = {
    "fedavg": {"variant": "paper", "mu1": 0.0, "mu2": 0.0},
    "fedmr": {"variant": "replayed"},
    "fedmr-paper": {"variant": "paper"},
}
"""Our methods as strategies of FLamby's: the arguments of :class:`fedmr_med.lab.flamby.FedMR` by name."""


class Request(Strict):
    """What is asked of FLamby whatever the dataset.

    Attributes:
        data: folder of the data.
        methods: of ours, ``local`` (each centre alone) and ``pooled`` (all data in one place).
        seeds: every method is run with every seed.
        flamby: a FLamby checkout; None takes ``FEDMR_MED_FLAMBY``, or the installed package.
    """

    data: Path
    methods: tuple[str, ...] = (LOCAL, POOLED, "fedavg", "fedmr")
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    flamby: Path | None = None

    def digest(self) -> str:
        """Return a short hash of what a result depends on, besides method and seed."""
        content = self.model_dump(mode="json", exclude={"methods", "strategies", "seeds", "bn", "flamby"})
        content["data"] = "demo" if self.data == DEMO else str(self.data.resolve())
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=5).hexdigest()


class CompareRequest(Request):
    """A comparison on Fed-ISIC2019: a prepared folder, whose table of the split may be in the checkout, or ``demo``.

    Attributes:
        strategies: names of FLamby's strategies.
        rounds, updates, image_size, batch: FLamby's by default, and on the demo a budget for a CPU.
        centers: the centres that take part.
        bn: what becomes of BatchNorm statistics: ``average`` over the centres, those of the ``first`` centre as FLamby
            scores its models, or ``both``.
        max_test: test images of a centre that are used at most; None uses all.
        without_leaked: leave out test images of a lesion that is also in a train fold.
        pretrained: file with ImageNet weights of EfficientNet-b0; None starts from random ones.
    """

    strategies: tuple[str, ...] = tuple(name for name in published().strategies if name != "Cyclic")
    rounds: int = Field(published().protocol["rounds"], ge=1)
    updates: int = Field(published().protocol["updates"], ge=1)
    image_size: int = Field(published().protocol["image_size"], ge=8)
    batch: int = Field(published().protocol["batch"], ge=2)
    centers: tuple[int, ...] = Field(tuple(range(6)), min_length=1)
    bn: Literal["average", "first", "both"] = "both"
    max_test: int | None = Field(None, ge=1)
    without_leaked: bool = False
    pretrained: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, content: Any) -> Any:
        """Take the demo's budget on the demo."""
        on_demo = isinstance(content, dict) and Path(content.get("data", "")) == DEMO
        return _DEMO | content if on_demo else content

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name in self.methods:
            check_known(name, (LOCAL, POOLED, *methods.available()), "methods")
        for name in self.strategies:
            check_known(name, published().strategies, "strategies")
        for center in self.centers:
            if center not in range(6):
                raise invalid(f"centers: {center} is not a centre from 0 to 5", code="config.value", key="centers")
        return self

    @property
    def is_demo(self) -> bool:
        """Whether generated pictures stand in for data."""
        return self.data == DEMO

    @property
    def dataset(self) -> str:
        """FLamby's name of it."""
        return ISIC

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of the test sets."""
        return (POOLED, *map(site_name, self.centers))

    @property
    def policies(self) -> tuple[Buffers, ...]:
        """The policies for BatchNorm statistics."""
        return ("average", "first") if self.bn == "both" else (self.bn,)

    def job(self, method: str, seed: int, buffers: Buffers = "average") -> JobConfig:
        """Return the job of a method: FLamby's network, loss, optimiser and budget."""
        options = {"head": "flamby", "pretrained": str(self.pretrained.resolve()) if self.pretrained else "none"}
        job = isic_job(method).override(
            {
                "name": f"flamby_{method}",
                "seed": seed,
                "task": {"image_size": self.image_size},
                "model": {"options": options},
                "train": {
                    **{"lr": 0.01, "momentum": 0.0, "weight_decay": 0.0, "precision": "float32"},
                    **{"batch_size": self.batch, "updates": self.updates},
                },
                "federation": {
                    "rounds": self.rounds,
                    "min_sites": len(self.centers),
                    "buffers": buffers,
                    "max_norm": 1e12,  # the most there is: FLamby refuses nothing, and scores a training that diverges
                },
            }
        )
        return job.override(_DEMO_SETTINGS) if self.is_demo else job

    def sites(self) -> dict[str, SiteConfig]:
        """Return the settings of the centres by name, in FLamby's order. All prototypes are shared."""
        # Models are scored at the end, on the same images for all: no metrics from the sites.
        policy = SitePolicy(
            share_prototypes=True, min_class_count=1, share_metrics="none", round_samples=1, training=None
        )
        sources = {
            center: DemoSource(source="demo", center=center)
            if self.is_demo
            else FlambyIsicSource(source="flamby_isic", center=center, root=self.data, flamby=self.flamby)
            for center in self.centers
        }
        return {site_name(center): SiteConfig(data=source, policy=policy) for center, source in sources.items()}


class SetRequest(Request):
    """A comparison on another of FLamby's datasets: loaders, network, loss, metric and settings are FLamby's own.

    Attributes:
        dataset: FLamby's name of it.
        strategies: names of FLamby's strategies; None takes those of its configuration but Cyclic.
        rounds: None takes FLamby's.
        updates: local updates of a round.
    """

    dataset: str
    strategies: tuple[str, ...] | None = None
    rounds: int | None = Field(None, ge=1)
    updates: int = Field(UPDATES, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, content: Any) -> Any:
        """Refuse by name what only Fed-ISIC2019 has."""
        given = content if isinstance(content, dict) else {}
        for key in given.keys() & CompareRequest.model_fields.keys() - cls.model_fields.keys():
            why = f"--{key.replace('_', '-')} is for {ISIC}; {given.get('dataset')} takes FLamby's own"
            raise invalid(why, code="config.conflict", key=key)
        return content

    @model_validator(mode="after")
    def _known(self) -> Self:
        known_set(self.dataset)
        for name in self.methods:
            check_known(name, (LOCAL, POOLED, *OURS), "methods")  # FLamby's own are strategies
        if self.data == DEMO:
            raise invalid(f"data: there is no demo of {self.dataset}", code="config.conflict", key="data")
        return self

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of the test sets."""
        return (POOLED, *map(site_name, range(known_set(self.dataset).centers)))


def site_name(center: int) -> str:
    """Return the name of a centre's site; the names sort in FLamby's order of clients."""
    return f"center-{center}"
