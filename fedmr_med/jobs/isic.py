"""The Fed-ISIC2019 job, which commands take where no other is named."""

from fedmr_med.config import JobConfig
from fedmr_med.jobs.catalog import job_for

ISIC = "isic2019"


def isic_job(method: str) -> JobConfig:
    """Return the Fed-ISIC2019 job of a method, with FLamby's protocol and, on the demo, a budget for two CPU cores."""
    return job_for(ISIC, method)
