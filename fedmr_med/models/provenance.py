"""Where a model comes from, as its file tells whoever gets a copy of it."""

from typing import Literal

from fedmr_med.config import JobConfig
from fedmr_med.schema import Name, Strict
from fedmr_med.version import installed

DEMO = "DEMO: trained on generated pictures. No figure of it is a medical result."


class Provenance(Strict):
    """Where a model comes from. What its pictures went through is in its job, ``task.preparation``.

    Attributes:
        version: of this schema.
        demo: whether all sites are known to have trained on generated pictures.
        job: digest of its job's settings.
        site: the site whose own model it is; None for a global one.
        code: versions of the packages that trained it.
    """

    version: Literal[1] = 1
    demo: bool
    dataset: str
    job: str
    site: Name | None = None
    code: dict[str, str]

    @classmethod
    def of(cls, job: JobConfig, *, demo: bool = False, site: str | None = None) -> "Provenance":
        """Return what is to be told of a model that this code trains now."""
        return cls(demo=demo, dataset=job.task.dataset, job=job.digest(), site=site, code=installed())
