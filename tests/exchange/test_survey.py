"""What the sites hold, by a survey: compared with the pictures themselves, which the test has drawn."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.records import Held, SurveyRecord
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.privacy.mechanisms import without_small_parts
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.report.document import write_report
from fedmr_med.report.pages.survey import distance, only_at_one, unlike
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import Chain
from fedmr_med.site.release import released
from fedmr_med.sites import SiteConfig
from fedmr_med.statistics.base import Leaving, Sizes
from fedmr_med.statistics.catalog import layouts
from fedmr_med.statistics.survey import EDGES, SURVEY_STATISTIC, Survey
from fedmr_med.wire.codec import Message, decode_reply, encode_reply
from fedmr_med.wire.kinds import SURVEY
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.surveyed import CLASSES, OPEN, SUBGROUPS, Picture, pictures, survey, write_hospitals

FEWEST = 11
PICTURES = pictures()
SITES = ("mitte", "nord", "sur")


def run(job: JobConfig, sites: dict[str, SiteConfig], folder: Path) -> SurveyRecord:
    federation = Federation(job, sites, folder)
    state = federation.run()
    Chain(folder, federation.job).write_results(state)
    assert state.history.survey is not None
    return state.history.survey


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    write_hospitals(folder, PICTURES)
    return folder


def expected(found: list[Picture], fewest: int = FEWEST) -> tuple[list[int], list[int], list[Picture]]:
    """Return training and test images by class as they may leave, and the training images of the classes that do."""
    train, test = (
        [sum(one.label == label and one.fold == fold for one in found) for label in range(len(CLASSES))]
        for fold in ("train", "test")
    )
    kept = [one for one in found if one.fold == "train" and train[one.label] >= fewest]
    return [n if n >= fewest else 0 for n in train], [n if n >= fewest else 0 for n in test], kept


def tones(found: list[Picture]) -> tuple[np.ndarray, np.ndarray]:
    colors = np.array([one.color for one in found]) / 255
    columns = np.column_stack([colors.mean(1), colors.std(1), colors])
    return columns.mean(0), columns.std(0)


def test_a_hospital_tells_what_it_holds(hospitals: Path, tmp_path: Path) -> None:
    record = run(*survey(hospitals, {}), tmp_path)
    assert tuple(record.sites) == SITES
    for site, held in record.sites.items():
        own = [one for one in PICTURES if one.site == site]
        train, test, kept = expected(own)
        assert (list(held.train), list(held.test), held.measured) == (train, test, len(kept))
        means, deviations = tones(kept)
        assert [tone.mean for tone in held.tones.values()] == pytest.approx(means.tolist(), abs=2e-4)
        assert [tone.deviation for tone in held.tones.values()] == pytest.approx(deviations.tolist(), abs=2e-3)
        edges = Counter(max(edge for edge in EDGES if edge <= min(one.size)) for one in kept)
        assert held.edges and held.edges.items() <= edges.items()
        hidden = len(kept) - sum(held.edges.values())
        assert min(held.edges.values()) >= FEWEST and (hidden == 0 or hidden >= FEWEST)


def test_a_second_picture_of_the_same_pixels_is_a_double(hospitals: Path, tmp_path: Path) -> None:
    record = run(*survey(hospitals, {}), tmp_path)
    assert record.sites["nord"].doubles == 12
    assert record.sites["mitte"].doubles == record.sites["sur"].doubles == 0


def level(column: str, one: Picture) -> str:
    if column == "age":
        years = int(one.age or -1)
        return next(
            (f for f, (a, b) in {"0-39": (0, 39), "40-59": (40, 59), "60+": (60, 199)}.items() if a <= years <= b), ""
        )
    return next((f for f in SUBGROUPS[column] if f.lower() == getattr(one, column).lower()), "")


@pytest.mark.parametrize("column", SUBGROUPS)
def test_images_are_counted_by_a_column_of_the_table(column: str, hospitals: Path, tmp_path: Path) -> None:
    record = run(*survey(hospitals, {}), tmp_path)
    for site, held in record.sites.items():
        kept = expected([one for one in PICTURES if one.site == site])[2]
        exact = Counter(level(column, one) for one in kept)
        told = held.subgroups[column]
        hidden = len(kept) - sum(told.values())
        assert all(count in (0, exact[name]) for name, count in told.items())
        assert all(count >= FEWEST for count in told.values() if count)
        assert hidden == 0 or hidden >= FEWEST
        assert any(told.values())


def test_a_secure_sum_gives_the_total_and_no_hospital(hospitals: Path, tmp_path: Path) -> None:
    plain = run(*survey(hospitals, {}), tmp_path / "plain")
    secure = {"federation.secure": "statistics", "federation.min_sites": 3}
    total = run(*survey(hospitals, {}, **secure), tmp_path / "secure")
    assert total.sites == {} and total.secure is not None and total.secure.sites == SITES
    assert total.total is not None and plain.total is not None
    assert total.total.model_dump(exclude={"tones"}) == plain.total.model_dump(exclude={"tones"})
    for name, tone in total.total.tones.items():
        assert tone.mean == pytest.approx(plain.total.tones[name].mean, abs=1e-4)
        assert tone.deviation == pytest.approx(plain.total.tones[name].deviation, abs=1e-4)


def test_what_a_policy_does_not_share_does_not_leave(hospitals: Path, tmp_path: Path) -> None:
    policies = {
        "mitte": SitePolicy(training=None),
        "nord": OPEN.model_copy(update={"share_survey": "counts", "share_subgroups": False}),
        "sur": OPEN.model_copy(update={"share_prototypes": ("a",), "share_subgroups": ("sex",)}),
    }
    record = run(*survey(hospitals, policies), tmp_path)
    assert record.silent == ("mitte",), "nothing is shared by default"
    nord, sur = record.sites["nord"], record.sites["sur"]
    assert list(nord.train) == expected([one for one in PICTURES if one.site == "nord"])[0]
    assert not nord.tones and not nord.edges and not nord.doubles
    assert not any(count for column in nord.subgroups.values() for count in column.values())
    assert sur.train[0] and not any(sur.train[1:]) and not any(sur.test[1:]), "an opted-out class is told nowhere"
    assert sur.measured == sur.train[0]
    assert any(sur.subgroups["sex"].values())
    assert not any(count for column in ("age", "device") for count in sur.subgroups[column].values())
    total = record.total
    assert total is not None and total.train == tuple(a + b for a, b in zip(nord.train, sur.train, strict=True))


def test_a_budget_keeps_exact_numbers_in(hospitals: Path, tmp_path: Path) -> None:
    budget = SitePolicy.model_validate(OPEN.model_dump() | {"privacy": {"epsilon": 1.0, "min_noise": 1.0}})
    record = run(*survey(hospitals, dict.fromkeys(SITES, budget)), tmp_path)
    assert record.silent == SITES and record.total is None


def small(arrays: Survey) -> int:
    """Return how many numbers from 1 to 10 a survey tells, or lets follow."""
    whole = int(arrays.train.sum())
    parts = [arrays.train, arrays.test, arrays.doubles, arrays.measured]
    told = [*parts, *(part for part in (arrays.edges,) if part.any())]
    rest = [whole - int(part.sum()) for part in (arrays.edges, arrays.levels[:2], arrays.levels[2:]) if part.any()]
    numbers = np.concatenate([*told, arrays.levels, rest])
    return int(((numbers > 0) & (numbers < FEWEST)).sum())


LEVELS = (("sex", "f"), ("sex", "m"), ("device", "x"), ("device", "y"), ("device", "z"))


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    """Any survey of any site, small numbers included."""
    train, test = (
        np.array(draw(st.lists(st.sampled_from([0, 1, 5, 10, 11, 40]), min_size=3, max_size=3))) for _ in "ab"
    )
    generator, whole = np.random.default_rng(draw(st.integers(0, 2**32))), int(train.sum())

    def cut(parts: int) -> np.ndarray:
        return generator.multinomial(whole, generator.dirichlet(np.full(parts, 0.3)))

    values = generator.uniform(size=(whole, 5))
    levels = np.concatenate([cut(3)[:2], cut(4)[:3]])
    counts = (np.array([draw(st.integers(0, whole))]), np.array([whole]))
    return Survey(train, test, cut(len(EDGES)), levels, *counts, values.sum(0), (values**2).sum(0))


@given(surveys(), st.sampled_from(["counts", "images"]), st.booleans())
def test_no_small_number_leaves_or_follows(found: Survey, told: str, columns: bool) -> None:
    policy = SitePolicy(share_survey=told, share_subgroups=columns, share_prototypes=True)
    left = SURVEY_STATISTIC.permitted(found, Leaving(policy, CLASSES, LEVELS))
    if left is None:
        return
    assert small(left) == 0
    again = SURVEY_STATISTIC.permitted(left, Leaving(policy, CLASSES, LEVELS))
    assert str(encoded(again)) == str(encoded(left)), "what may leave may leave again"
    if not np.array_equal(left.train, found.train):
        assert not left.measured.any() and not left.levels.any(), "what small classes are part of stays"


def test_the_attack_reads_small_numbers_where_a_policy_lets_it() -> None:
    found = Survey(
        *(
            np.array(part)
            for part in ([40, 5, 0], [20, 3, 0], [45, *[0] * (len(EDGES) - 1)], [3, 42, 1, 2, 3], [1], [45])
        ),
        tones=np.full(5, 20.0),
        squares=np.full(5, 10.0),
    )
    policy = SitePolicy(share_survey="images", share_subgroups=True, share_prototypes=True, min_class_count=1)
    left = SURVEY_STATISTIC.permitted(found, Leaving(policy, CLASSES, LEVELS))
    assert left is not None and small(left) > 5


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 30), st.integers(1, 20))
def test_parts_hide_each_other(parts: list[int], rest: int, least: int) -> None:
    whole, exact = sum(parts) + rest, np.array(parts)
    left = without_small_parts(exact, whole, least)
    assert all(count in (0, own) for count, own in zip(left.tolist(), parts, strict=True))
    assert all(count >= least for count in left.tolist() if count)
    hidden = whole - int(left.sum())
    assert hidden == 0 or hidden >= least or not left.any()
    if min(parts) >= least and rest in (0, least):
        assert left.tolist() == parts, "nothing is held back without need"


def test_a_filter_lets_nothing_pass_that_the_site_did_not(hospitals: Path) -> None:
    job, _ = survey(hospitals, {})
    form, levels = reply_form(job), len(job.task.levels)
    forged = Survey(
        *(np.array(part) for part in ([40, 5, 0], [20, 3, 0], [45] + [0] * 9, [3] * levels, [1], [45])),
        tones=np.full(5, 20.0),
        squares=np.full(5, 10.0),
    )
    sent = released(SURVEY, encoded(forged), OPEN, form)
    left = decode_reply(SURVEY, sent, "nord", form.layouts[SURVEY]).of(SURVEY_STATISTIC)
    assert left is not None and left.train.tolist() == [40, 0, 0] and not left.measured.any() and not left.levels.any()
    assert released(SURVEY, encoded(forged), SitePolicy(), form) == Message({}), "by default nothing leaves"
    with raises("wire.unasked", "pixels"):
        released(SURVEY, Message(encoded(forged).parts | {"pixels": {"x": np.zeros(3)}}), OPEN, form)


def encoded(survey: Survey | None) -> Message:
    return encode_reply(SURVEY, SiteReply("nord").with_statistic(SURVEY_STATISTIC, survey))


def honest() -> Survey:
    numbers = ([40, 20], [20, 0], [60] + [0] * 9, [30], [0], [60])
    return Survey(*(np.array(part) for part in numbers), tones=np.full(5, 30.0), squares=np.full(5, 16.0))


@pytest.mark.parametrize(
    "lie",
    [
        {"train": np.array([-1, 61])},
        {"edges": np.array([61] + [0] * 9)},
        {"levels": np.array([61])},
        {"measured": np.array([61])},
        {"doubles": np.array([81])},
        {"tones": np.full(5, 61.0)},
        {"squares": np.full(5, 31.0)},
        {"squares": np.full(5, 14.0)},
        {"tones": np.full(5, np.nan)},
        {"train": np.array([40, 20, 0])},
    ],
)
def test_a_server_refuses_a_survey_that_no_images_give(lie: dict[str, np.ndarray]) -> None:
    agreed = layouts(SURVEY, Sizes(2, 0, 0, levels=1))
    assert decode_reply(SURVEY, encoded(honest()), "nord", agreed).of(SURVEY_STATISTIC) is not None
    with pytest.raises(WireError):
        decode_reply(SURVEY, encoded(replace(honest(), **lie)), "nord", agreed)


def test_it_says_what_stands_out(hospitals: Path, tmp_path: Path) -> None:
    record = run(*survey(hospitals, {}), tmp_path)
    assert only_at_one(record, CLASSES) == [
        "c is at one hospital only: mitte. The others have none, or too few to tell."
    ]
    said = " ".join(unlike(record))
    assert "sur" in said and "brightness" in said and "below" in said
    kept = {site: expected([one for one in PICTURES if one.site == site])[2] for site in SITES}
    bright = {site: np.array([np.mean(one.color) / 255 for one in found]) for site, found in kept.items()}
    others = np.concatenate([bright["mitte"], bright["nord"]])
    within = np.concatenate([values - values.mean() for values in bright.values()])
    reference = (bright["sur"].mean() - others.mean()) / np.sqrt((within**2).mean())
    sites = record.sites
    assert distance(sites["sur"], [sites["mitte"], sites["nord"]], "brightness") == pytest.approx(reference, rel=0.01)


def test_the_page_shows_counts_and_who_tells_nothing(hospitals: Path, tmp_path: Path) -> None:
    run(*survey(hospitals, {"nord": SitePolicy(training=None)}), tmp_path)
    write_report([tmp_path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "nord shares no survey" in page and "c is at one hospital only: mitte" in page
    assert "Training images by sex" in page and "few or none" in page


def test_a_survey_has_no_model_and_a_job_with_one_is_none(hospitals: Path) -> None:
    job, _ = survey(hospitals, {})
    for change in ({"model": {"name": "small_cnn"}}, {"federation": {"rounds": 1}}, {"survey": False}):
        with raises("config.conflict", "survey"):
            job.override(change)


def test_a_total_of_nothing_is_nothing() -> None:
    record = SurveyRecord(sites={}, total=Held(train=(3,), test=(0,)))
    assert only_at_one(record, ("a",)) == [] and unlike(record) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"policy.share_prototypes": list(CLASSES[1:])},
        {"policy.share_prototypes": False},
        {"policy.min_class_count": 12},
        {"train.validation": 0.2},
    ],
)
def test_surveys_do_not_differ_in_whom_they_ask_about(hospitals: Path, changes: dict[str, object]) -> None:
    """Of 40 women in two classes and 37 in the first, the difference says that 3 are in the second."""
    with raises("config.conflict", "survey"):
        survey(hospitals, {}, **changes)
