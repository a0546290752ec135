"""Pretrained weights that everybody can get, by their SHA-256: a site knows them without having them."""

from fedmr_med.arrays import Arrays, weights_digest
from fedmr_med.config import JobConfig

_BACKBONE = "base_model."

PUBLIC = {
    ("efficientnet_lite0", "imagenet"): "62f5b0bf66bf20d1d933b5bba4cd82560a3cac566e89a48f794cfcebdac75004",
}
"""By network and ``model.options.pretrained``: the digest of what the file fills, see :func:`pretrained_part`."""


def pretrained_part(arrays: Arrays) -> Arrays:
    """Return the arrays that a file of pretrained weights fills, whatever network wraps them."""
    return {name.partition(_BACKBONE)[2]: array for name, array in arrays.items() if _BACKBONE in name}


def without_pretrained(arrays: Arrays) -> Arrays:
    """Return all other arrays."""
    return {name: array for name, array in arrays.items() if _BACKBONE not in name}


def are_public(job: JobConfig, arrays: Arrays) -> bool:
    """Whether the pretrained part of a network is the public one that the job names."""
    named = job.model.name, str(job.model.options["pretrained"])
    return PUBLIC.get(named) == weights_digest(pretrained_part(arrays))
