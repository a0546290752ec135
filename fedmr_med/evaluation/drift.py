"""Whether a model meets other images than before: how far its answers in two periods differ.

The distance is the population stability index (PSI): the sum over the categories of (p - q) ln(p / q), of the shares p
in the new period and q in the reference. Two periods without any change differ too, by chance, and the more the fewer
images they have. So the alarm has a threshold of its own for each comparison: a quantile of the PSI when the images of
both periods are dealt anew. Where images are independent, that is exact for every size (a permutation test; Fisher,
1935), but for categories that the rule of small cells joins after seeing the counts.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedmr_med.errors import ResultsError
from fedmr_med.evaluation.base import short
from fedmr_med.evaluation.clinical import FloatArray, IntArray
from fedmr_med.evaluation.usage import Summary, Usage
from fedmr_med.schema import Name, Strict

TOGETHER = "all together"
_OTHERS = "what is held back"
_LARGEST = 10  # of the simulated values the threshold is the so manyth largest


class Change(Strict):
    """How far a period is from the reference.

    Attributes:
        site: the hospital, or :data:`TOGETHER`.
        of: what is compared.
        images: of the period.
        psi: the distance; of all hospitals together the mean of theirs, weighted by their images.
        threshold: the alarm is raised above it.
        alarm: whether it is.
        moved: the category with the largest part of the distance; None for all hospitals together.
        before, after: its share of the images.
    """

    site: Name
    of: Literal["answers", "confidence"]
    images: int
    psi: float
    threshold: float
    alarm: bool
    moved: str | None = None
    before: float | None = None
    after: float | None = None


def psi(reference: npt.NDArray[Any], period: npt.NDArray[Any]) -> FloatArray:
    """Return the parts (..., k) of the population stability index of counts (..., k).

    Each category is given half an image more, so that none is empty.
    """
    before, after = (
        (counts + 0.5) / (counts + 0.5).sum(-1, keepdims=True) for counts in (np.asarray(reference), np.asarray(period))
    )
    parts: FloatArray = (after - before) * np.log(after / before)
    return parts


def changes(
    reference: Summary,
    period: Summary,
    *,
    false_alarms: float = 0.01,
    least: float = 0.1,
    images_per_patient: float = 1.0,
) -> tuple[Change, ...]:
    """Compare a period with a reference, each hospital that is in both and all of them together.

    Args:
        false_alarms: the share of comparisons without any change in which an alarm, or several, may be raised.
        least: the PSI up to which no alarm is raised however many images there are.
        images_per_patient: how many images a patient has. They are dealt together, as if all had the same answer.

    Raises:
        ResultsError: the summaries are of different models, share days, or have no hospital in common.
    """
    reference.check_apart(period)
    sites = [site for site in period.usage if site in reference.usage]
    if not sites:
        raise ResultsError("The reference has none of these hospitals.", code="data.empty")
    tests = 2 * (len(sites) + (len(sites) > 1))
    draws = math.ceil(_LARGEST * tests / false_alarms)
    random = np.random.default_rng(0)

    def judged(distance: float, by_chance: FloatArray) -> dict[str, float | bool]:
        threshold = max(least, float(np.sort(by_chance)[-_LARGEST]))
        return {"psi": short(distance), "threshold": short(threshold), "alarm": distance > threshold}

    def compared(of: Literal["answers", "confidence"]) -> Iterator[Change]:
        total, weighted, by_chance = 0, 0.0, np.zeros(draws)
        for site in sites:
            labels, before, after = _alike(reference.usage[site], period.usage[site], of)
            parts, images = psi(before, after), int(after.sum())
            simulated = _by_chance(before + after, images, images_per_patient, draws, random)
            most = int(parts.argmax())
            shares = {"before": short(before[most] / before.sum()), "after": short(after[most] / images)}
            told = judged(float(parts.sum()), simulated)
            yield Change.model_validate(
                {"site": site, "of": of, "images": images, "moved": labels[most]} | shares | told
            )
            total, weighted = total + images, weighted + images * float(parts.sum())
            by_chance += images * simulated
        if len(sites) > 1:
            told = judged(weighted / total, by_chance / total)
            yield Change.model_validate({"site": TOGETHER, "of": of, "images": total, **told})

    return (*compared("answers"), *compared("confidence"))


def _by_chance(both: IntArray, images: int, together: float, draws: int, random: np.random.Generator) -> FloatArray:
    """Return the PSI (draws,) when the images of two periods (k,) are dealt anew, so many of them to the second."""
    packs = np.rint(both / together).astype(np.int64)
    dealt = random.multivariate_hypergeometric(
        packs, min(round(images / together), int(packs.sum())), size=draws, method="marginals"
    )
    values: FloatArray = psi((packs - dealt) * together, dealt * together).sum(1)
    return values


def _alike(before: Usage, after: Usage, of: str) -> tuple[list[str], IntArray, IntArray]:
    """Return the categories (k,) that one of two periods tells, and their counts.

    What a period holds back is shared out among the categories that it does not tell, in the proportions of the other
    period: so the two differ no more than they have to. What both hold back is one category, the last.
    """
    names = list(getattr(before, of))
    tables = [[getattr(usage, of)[name] for name in names] for usage in (before, after)]
    told = np.array([[count is not None for count in table] for table in tables])
    counts = np.array([[count or 0 for count in table] for table in tables], dtype=np.int64)
    some, rest = np.asarray(told.any(0)), np.array([before.images, after.images]) - counts.sum(1)
    exact = np.concatenate([counts[:, some], np.zeros((2, 1), dtype=np.int64)], axis=1)
    weights = np.where(told[::-1, some] & ~told[:, some], exact[::-1, :-1], 0)
    weights = np.concatenate([weights, rest[::-1, None] * (not some.all())], axis=1)
    whole = exact + np.stack([_shared_out(*row) for row in zip(rest.tolist(), weights, strict=True)])
    labels = [*(names[index] for index in np.flatnonzero(some)), _OTHERS]
    filled = np.flatnonzero(whole.sum(0))
    return [labels[index] for index in filled], whole[0, filled], whole[1, filled]


def _shared_out(images: int, weights: IntArray) -> IntArray:
    """Return so many images as whole numbers in the proportions (k,); in the last place where there are none."""
    known = weights if weights.any() else np.eye(len(weights), dtype=np.int64)[-1]
    parts: IntArray = images * known // known.sum()
    parts[known.argmax()] += images - parts.sum()
    return parts
