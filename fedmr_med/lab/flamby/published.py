"""FLamby's settings and published results, from ``published.yaml``."""

from functools import lru_cache
from pathlib import Path

from pydantic import JsonValue

from fedmr_med.schema import Strict, read_yaml, validated


class Result(Strict):
    """Published balanced accuracy of one method, mean over five seeds.

    Attributes:
        pooled, std: on the test images of all centres, and its standard deviation.
        centers: on the test images of each of the six centres.
    """

    pooled: float
    std: float
    centers: tuple[float, ...]


class Published(Strict):
    """What FLamby's repository says about Fed-ISIC2019.

    Attributes:
        strategies: arguments of each strategy.
        protocol: the budget of the published numbers.
        results: published results by FLamby's name of the method.
    """

    strategies: dict[str, dict[str, JsonValue]]
    protocol: dict[str, int]
    results: dict[str, Result]


@lru_cache
def published() -> Published:
    """Return the content of ``published.yaml``."""
    path = Path(__file__).with_name("published.yaml")
    return validated(Published, read_yaml(path), str(path))
