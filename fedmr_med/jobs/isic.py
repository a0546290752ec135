"""The Fed-ISIC2019 job, which commands take where no other is named."""

from fedmr_med.config import JobConfig
from fedmr_med.jobs.catalog import job_for

ISIC = "isic2019"


def isic_job(method: str) -> JobConfig:
    """Return the Fed-ISIC2019 job of a method, with FLamby's split, loss and budget; the demo has its own."""
    return job_for(ISIC, method)
