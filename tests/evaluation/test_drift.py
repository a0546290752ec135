"""Whether a model meets other images than before: the distance, its threshold, and how often it is wrong."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import numpy as np
import pytest
from scipy.special import rel_entr
from scipy.stats import binom, chi2

from fedmr_med.errors import ResultsError
from fedmr_med.evaluation.drift import TOGETHER, Change, changes, psi
from fedmr_med.evaluation.usage import GROUPS, Summary, Usage
from fedmr_med.privacy.mechanisms import without_small_parts
from fedmr_med.schema import validated
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
CONFIDENCE = (0.05, 0.1, 0.1, 0.1, 0.15, 0.2, 0.15, 0.1, 0.05)
HOSPITALS = {
    "bcn": (400, (0.55, 0.20, 0.10, 0.06, 0.04, 0.03, 0.01, 0.01)),
    "rosendahl": (120, (0.10, 0.50, 0.30, 0.05, 0.03, 0.02, 0.0, 0.0)),
    "vidir": (60, (0.02, 0.03, 0.30, 0.30, 0.20, 0.10, 0.03, 0.02)),
}
"""Images of a month, and the shares of the classes."""
BEFORE, NOW = date(2026, 1, 1), date(2026, 2, 1)
MODEL = "0" * 64
RATE = 0.05


def told(names: Sequence[str], counts: np.ndarray, least: int) -> dict[str, int | None]:
    left = without_small_parts(counts, int(counts.sum()), least).tolist()
    return {name: count or (0 if least == 1 else None) for name, count in zip(names, left, strict=True)}


def usage(day: date, answers: np.ndarray, confidence: np.ndarray, least: int = 1) -> Usage:
    return Usage(
        periods=((day, day),),
        images=int(answers.sum()),
        answers=told(CLASSES, answers, least),
        confidence=told(GROUPS, confidence, least),
    )


def drawn(
    random: np.random.Generator,
    day: date,
    months: int = 1,
    mixes: Mapping[str, Sequence[float]] | None = None,
    patient: int = 1,
    least: int = 11,
) -> Summary:
    """Return the summary of some months at all hospitals, under the default rule of small cells or another."""
    found = {}
    for site, (images, mix) in HOSPITALS.items():
        patients = months * images // patient
        answers = patient * random.multinomial(patients, (mixes or {}).get(site, mix))
        found[site] = usage(day, answers, patient * random.multinomial(patients, CONFIDENCE), least)
    return Summary(model=MODEL, usage=found)


def of_one(day: date, answers: Sequence[int], confidence: Sequence[int] | None = None, site: str = "bcn") -> Summary:
    spread = [sum(answers), *[0] * (len(GROUPS) - 1)] if confidence is None else confidence
    return Summary(model=MODEL, usage={site: usage(day, np.array(answers), np.array(spread))})


def months(count: int, seed: int, patient: int = 1, least: int = 11) -> Iterator[tuple[Summary, Summary]]:
    """Yield references of three months, each with a month in which nothing has changed."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield tuple(drawn(random, day, n, patient=patient, least=least) for day, n in ((BEFORE, 3), (NOW, 1)))  # type: ignore[misc]


def alarm(found: Sequence[Change]) -> bool:
    return any(change.alarm for change in found)


def page(text: str) -> bool:
    """Whether the page on monitoring says so."""
    said = (REPOSITORY / "docs" / "monitoring.md").read_text(encoding="utf-8")
    return text in re.sub(r"\s+", " ", said)


def test_the_distance_is_the_symmetric_divergence_of_the_shares() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        a, b = random.integers(0, 200, (2, 8))
        p, q = (a + 0.5) / (a + 0.5).sum(), (b + 0.5) / (b + 0.5).sum()
        assert psi(a, b).sum() == pytest.approx(rel_entr(p, q).sum() + rel_entr(q, p).sum(), rel=1e-12)


def test_for_many_images_the_threshold_is_that_of_chi_square() -> None:
    """There PSI / (1 / n + 1 / m) is chi-square with k - 1 degrees of freedom (Yurdakul and Naranjo, 2020)."""
    answers, groups = (
        [4000, 3000, 2000, 1000, 900, 800, 700, 600],
        [1000, 1000, 1000, 2000, 2000, 2000, 2000, 1000, 1000],
    )
    before, after = of_one(BEFORE, answers, groups), of_one(NOW, [n // 2 for n in answers], [n // 2 for n in groups])
    first, second = changes(before, after, false_alarms=0.05, least=0)
    scale = 1 / 13000 + 1 / 6500
    for change, categories in ((first, 8), (second, 9)):
        assert change.threshold == pytest.approx(scale * chi2.ppf(1 - 0.05 / 2, categories - 1), rel=0.1)
        assert (change.psi, change.alarm) == (0, False)


def test_months_without_a_change_raise_no_more_alarms_than_stated() -> None:
    found = [changes(*pair, false_alarms=RATE, least=0) for pair in months(100, seed=1)]
    false = sum(map(alarm, found))
    naive = sum(any(change.psi > 0.1 for change in one if change.site != TOGETHER) for one in found)
    assert false <= 100 * RATE < naive
    assert page(f"an alarm in {false} of 100 months")
    assert page(f"PSI is above 0.1 in {naive}")


def test_with_every_count_told_the_rate_is_the_stated_one() -> None:
    false = sum(alarm(changes(*pair, false_alarms=RATE, least=0)) for pair in months(100, seed=1, least=1))
    assert 1 <= false <= binom.ppf(0.99, 100, RATE), "more often is not chance, and never would not see much"
    assert page(f"with every count told, in {false}")


def test_images_of_one_patient_go_together() -> None:
    pairs = list(months(50, seed=2, patient=3))
    alone = sum(alarm(changes(*pair, false_alarms=RATE, least=0)) for pair in pairs)
    together = sum(alarm(changes(*pair, false_alarms=RATE, least=0, images_per_patient=3)) for pair in pairs)
    assert together <= 50 * RATE < alone
    assert page(f"an alarm in {alone} of 50 months") and page(f"`--images-per-patient 3` in {together}")


def test_a_shift_at_one_hospital_is_found_there() -> None:
    random = np.random.default_rng(3)
    shifted = {"bcn": (0.40, 0.35, 0.10, 0.06, 0.04, 0.03, 0.01, 0.01)}  # melanoma 55 % -> 40 %, nevi 20 % -> 35 %
    found = [changes(drawn(random, BEFORE, 3), drawn(random, NOW, mixes=shifted)) for _ in range(50)]
    hits = [next(change for change in one if (change.site, change.of) == ("bcn", "answers")) for one in found]
    seen = sum(hit.alarm for hit in hits)
    assert seen >= 40 and {hit.moved for hit in hits if hit.alarm} <= {"NV", "MEL"}
    others = [change for one in found for change in one if change.alarm and change.site not in ("bcn", TOGETHER)]
    assert len(others) <= 2
    assert page(f"found in {seen} of 50")


def test_a_shift_into_classes_that_were_held_back_is_found() -> None:
    """They are the ones that a hospital did not have, so the rule of small cells must not hide them."""
    random = np.random.default_rng(4)
    mirrored = {"rosendahl": HOSPITALS["rosendahl"][1][::-1]}
    for _ in range(10):
        found = changes(drawn(random, BEFORE, 3), drawn(random, NOW, mixes=mirrored))
        assert {change.site for change in found if change.alarm} >= {"rosendahl"}


def test_a_few_images_more_or_less_make_no_month_another_one() -> None:
    """A number just below the rule is taken for what the other period has, as far as it may be."""
    one = of_one(BEFORE, [100, 50, 12, 12, 0, 0, 0, 0])
    held = usage(NOW, np.array([100, 50, 12, 9, 0, 0, 0, 0]), np.array([171, *[0] * 8]), least=11)
    assert list(held.answers.values()) == [100, 50, *[None] * 6]
    found = changes(one, Summary(model=MODEL, usage={"bcn": held}), least=0)
    assert found[0].psi < 0.01


def test_of_many_images_a_distance_below_the_least_is_no_alarm() -> None:
    before, after = of_one(BEFORE, [50000, 50000, *[0] * 6]), of_one(NOW, [51000, 49000, *[0] * 6])
    assert not alarm(changes(before, after))
    assert alarm(changes(before, after, least=0))


def test_hospitals_add_up_and_so_do_periods() -> None:
    mine, later = of_one(BEFORE, [20, 30, *[0] * 6]), of_one(NOW, [5, 1, *[0] * 6])
    other = of_one(BEFORE, [1, 2, *[0] * 6], site="vidir")
    total = mine + other + later
    assert list(total.usage["bcn"].answers.values())[:2] == [25, 31] and total.usage["bcn"].images == 56
    assert total.usage["vidir"] == other.usage["vidir"]
    assert total.usage == (later + mine + other).usage | {"bcn": total.usage["bcn"]}
    held = mine.usage["bcn"].model_copy(update={"answers": dict.fromkeys(CLASSES)})
    both = held + later.usage["bcn"]
    assert both.images == 56 and set(both.answers.values()) == {None}, "what one holds back stays so"


def test_a_small_shift_everywhere_shows_in_all_together() -> None:
    answers, moved = [60, 40, *[0] * 6], [45, 55, *[0] * 6]
    sites = [f"site{number}" for number in range(12)]
    before, after = of_one(BEFORE, answers, site=sites[0]), of_one(NOW, moved, site=sites[0])
    for site in sites[1:]:
        before, after = before + of_one(BEFORE, answers, site=site), after + of_one(NOW, moved, site=site)
    found = changes(before, after, least=0)
    assert [change.site for change in found if change.alarm] == [TOGETHER]
    alone = [change.psi for change in found if change.of == "answers" and change.site != TOGETHER]
    assert next(change.psi for change in found if change.site == TOGETHER) == pytest.approx(np.mean(alone), abs=1e-4)


def reordered(summary: Summary) -> Summary:
    """Return the summary with its classes in another order, as a file may have them."""
    content = summary.model_dump(mode="json")
    for site in content["usage"].values():
        site["answers"] = dict(reversed(site["answers"].items()))
    return Summary.model_validate(content)


def test_what_cannot_be_compared_is_refused() -> None:
    one = of_one(BEFORE, [20, 30, *[0] * 6])
    assert changes(one, reordered(of_one(NOW, [20, 30, *[0] * 6])))[0].psi == 0
    with raises("config.conflict", "model"):
        changes(one, of_one(NOW, [20, 30, *[0] * 6]).model_copy(update={"model": "1" * 64}))
    with raises("config.conflict", "bcn"):
        changes(one, one)
    with raises("config.conflict", "bcn"):
        one + one
    with raises("data.empty"):
        changes(one, of_one(NOW, [20, 30, *[0] * 6], site="vidir"))
    fewer = one.usage["bcn"].model_copy(update={"answers": {"MEL": 50}, "periods": ((NOW, NOW),)})
    with raises("config.conflict", "bcn"):
        changes(one, Summary(model=MODEL, usage={"bcn": fewer}))


@pytest.mark.parametrize(
    "change",
    [
        {"images": 0},
        {"images": 49},
        {"images": 10**12},
        {"answers": {"MEL": -1}},
        {"answers": {"=MEL": 20}},
        {"confidence": {"0 to 1": 50}},
        {"periods": []},
        {"more": 1},
    ],
)
def test_a_summary_that_cannot_be_one_is_refused(change: dict[str, object]) -> None:
    content = of_one(BEFORE, [20, 30, *[0] * 6]).model_dump(mode="json")
    content["usage"]["bcn"] |= change
    with pytest.raises(ResultsError):
        validated(Summary, content, "use.json", ResultsError)
