"""The results schema: what is written is what is read, and a file of another version is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord, SiteReport, SiteRound
from fedmr_med.evaluation.results import (
    SCHEMA_VERSION,
    RoundResult,
    RunResult,
    RunResults,
    RunSetup,
    read_result,
    versioned,
    write_result,
)
from fedmr_med.evaluation.score import Evaluation, Score
from fedmr_med.report.lines import runaway_line
from fedmr_med.report.pages.comparison import remarks
from tests.helpers.errors import raises
from tests.helpers.results import whole_score

SETUP = RunSetup(dataset="fmnist", split="P5C2", method="fedmr", seed=3, options={"mu1": 0.1, "terms": ["a"]})
# The keys that programs outside the repository read.
RUN_KEYS = {"dataset", "split", "method", "seed", "rounds", "best_accuracy"}
ROUND_KEYS = {"round", "accuracy", "balanced_accuracy", "seconds", "bytes_up", "bytes_down"}

shares = st.floats(0, 1)
scores = st.builds(whole_score, shares, shares, st.integers(0, 10**6))
figures = st.floats(-1e12, 1e12)
sites = st.builds(
    SiteRound,
    samples=st.integers(0, 10**6),
    shared_classes=st.tuples(st.from_regex(r"[A-Z0-9][a-z /.-]{0,3}[A-Z]", fullmatch=True)),
    bytes_up=st.integers(0, 10**12),
    bytes_down=st.integers(0, 10**12),
    seconds=st.none() | st.floats(0, 1e6),
    terms=st.just({}) | st.fixed_dictionaries({"classification": figures, "inter": figures}),
    images_total=st.none() | st.integers(0, 10**6),
    images_skipped=st.none() | st.integers(0, 10**6),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A history of up to six rounds, any of which may have gone without scores."""
    history = History()
    for number in range(draw(st.integers(0, 6)) + 1):
        if number:
            taken = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), sites, min_size=1))
            refused = draw(st.dictionaries(st.sampled_from(["d", "e"]), st.text(max_size=9)))
            seconds = draw(st.floats(0, 1e6))
            history = history.with_round(RoundRecord(round=number, sites=taken, refused=refused, seconds=seconds))
        if draw(st.booleans()):
            pooled = draw(st.none() | scores)
            evaluation = Evaluation(round=number, sites={}, pooled=pooled, pooled_sites=())
            history = history.with_evaluation(evaluation)
    return history


@pytest.mark.slow
@given(history=histories(), whole=st.booleans())
def test_a_result_survives_its_file(history: History, whole: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "survives.json"
    result = RunResult.of(SETUP, history, whole=whole)
    results = RunResults(runs=(result, RunResult.failed(SETUP, "diverged")))
    path.write_text(json.dumps(versioned(results)))
    assert read_result(path, RunResults) == results
    (written, failed) = json.loads(path.read_text())["runs"]
    assert written.keys() >= RUN_KEYS
    assert all(entry.keys() >= ROUND_KEYS for entry in written["rounds"])
    assert ("history" in written) == whole
    assert "error" not in written
    assert failed["error"] == "diverged"


@pytest.mark.slow
@given(history=histories())
def test_the_figures_of_a_run_follow_from_its_rounds(history: History) -> None:
    result = RunResult.of(SETUP, history)
    scored = {e.round: e.pooled for e in history.evaluations if e.pooled}
    assert [entry.round for entry in result.rounds] == [record.round for record in history.rounds]
    assert [entry.accuracy for entry in result.rounds] == [
        scored[r.round].accuracy if r.round in scored else None for r in history.rounds
    ]
    assert (result.best_accuracy is None) == (not scored)
    if result.best_accuracy is not None and result.best_round is not None:
        assert all(score.accuracy <= result.best_accuracy for score in scored.values())
        assert scored[result.best_round].accuracy == result.best_accuracy
    assert sum(entry.bytes_up for entry in result.rounds) == sum(
        site.bytes_up for record in history.rounds for site in record.sites.values()
    )


def entry_of(**sites: dict[str, Any]) -> RoundResult:
    """Return the entry of a round of these sites."""
    parts = {
        name: SiteRound(samples=1, shared_classes=(), bytes_up=1, bytes_down=2, **of) for name, of in sites.items()
    }
    (entry,) = RunResult.of(SETUP, History().with_round(RoundRecord(round=1, sites=parts))).rounds
    return entry


def test_sites_whose_terms_differ_are_averaged_by_term() -> None:
    entry = entry_of(a={"terms": {"a": 1.0}}, b={"terms": {"a": 3.0, "b": 1e12}}, c={"terms": {"b": -1e12}})
    assert entry.terms == {"a": 2.0, "b": 0.0}


def test_sites_that_tell_nothing_do_not_count_in_the_means() -> None:
    entry = entry_of(a={"seconds": 4.0, "terms": {"a": 2.0}}, b={})
    assert (entry.local_seconds, entry.terms, entry.bytes_up, entry.bytes_down) == (4.0, {"a": 2.0}, 2, 4)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"runs": []}, ("file.version",)),
        ({"schema_version": 99, "runs": []}, ("file.version",)),
        ({"schema_version": SCHEMA_VERSION, "runs": [], "speed": 1}, ("config.unknown-key", "speed")),
        ({"schema_version": SCHEMA_VERSION, "runs": [{"dataset": "fmnist"}]}, ("config.missing", "runs.0.split")),
        ([], ("file.version",)),
        ("{", ("file.unreadable",)),
        (None, ("file.unreadable",)),
    ],
)
def test_a_file_of_another_form_is_refused_by_name(content: Any, fault: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with raises(*fault) as refused:
        read_result(path, RunResults)
    assert str(path) in str(refused.value)


def test_the_version_comes_first_in_a_file(tmp_path: Path) -> None:
    write_result(tmp_path / "new" / "results.json", RunResults(runs=()))
    content = json.loads((tmp_path / "new" / "results.json").read_text())
    assert list(content.items()) == [("schema_version", SCHEMA_VERSION), ("runs", [])]


@pytest.mark.parametrize(
    "figures",
    [
        {"names": ["x"]},
        {"seconds": "1"},
        {"images_total": 1.5},
        {"terms": {"a": "b"}},
        {"terms": dict.fromkeys("abcdefghi", 1.0)},
        {"terms": {"a": math.nan}},
        {"terms": {"a": math.inf}},
        {"terms": {"a": 10**400}},
        {"terms": {"a": True}},
        {"terms": {"NV has 3 images": 1.0}},
        {"terms": {"a" * 33: 1.0}},
        {"seconds": -1.0},
        {"images_total": True},
        {"images_skipped": -1},
        {"images_total": 10**400},
    ],
)
def test_a_report_holds_plain_figures_only(figures: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        SiteReport.model_validate(figures)


def test_an_untrained_model_does_not_win_a_tie() -> None:
    def scored(round_number: int, value: float) -> Evaluation:
        score = whole_score(value, value)
        return Evaluation(round=round_number, sites={}, pooled=score, pooled_sites=("a",))

    history = History().with_evaluation(scored(0, 0.5)).with_evaluation(scored(1, 0.5))
    assert history.best.round == 1
    again = history.with_evaluation(scored(2, 0.5)).best
    assert again.round == 1


def history_of(*norms: float | None) -> History:
    history = History()
    for number, norm in enumerate(norms, start=1):
        history = history.with_round(RoundRecord(round=number, sites={}, prototype_norm=norm))
    return history


@pytest.mark.parametrize(
    ("norms", "noticed"),
    [
        ((), None),
        ((None, None), None),
        ((20.4, 19.7, 13.4, 9.1, 6.7, 6.1, 5.9, 6.0, 6.1, 6.2, 6.3, 6.4), None),  # grows, but hardly
        ((9, 5, 6, 7, 8, 9, 8.9, 10), None),  # four rounds in a row, then a step back
        ((9, 5, 6, 7, 8, 9, 10, 11), 7),
        ((5, None, 6, 7, None, 8, 9, 10), 8),  # rounds in which nobody shared do not count
    ],
)
def test_features_that_run_away_are_noticed(norms: tuple[float | None, ...], noticed: int | None) -> None:
    history = history_of(*norms)
    assert history.runaway_round == noticed
    setup = RunSetup(dataset="fmnist", split="P5C2", method="fedmr", label="fedmr (paper)", seed=0)
    result = RunResult.of(setup, history)
    assert result.runaway_round == noticed
    warned = [n for n in range(1, len(norms) + 1) if runaway_line(history_of(*norms[:n])) is not None]
    assert warned == ([] if noticed is None else [noticed]), "the log says it once"
    assert bool(remarks([result])) == (noticed is not None)


@pytest.mark.parametrize(
    ("recall", "one_class"),
    [((0.0, 1.0, 0.0), True), ((None, 1.0, 0.0), True), ((0.0, 1.0, 0.1), False), ((None, 1.0), False), ((), False)],
)
def test_a_model_that_answers_with_one_class_is_named(recall: tuple[float | None, ...], one_class: bool) -> None:
    mean = sum(value or 0 for value in recall) / max(len(recall), 1)
    score = Score(accuracy=0.9, mean_recall=mean, balanced_accuracy=mean, classes=3, samples=10, recall=recall)
    history = history_of(None).with_evaluation(Evaluation(round=1, sites={}, pooled=score, pooled_sites=("a",)))
    result = RunResult.of(SETUP, history)
    assert bool(result.one_class) is one_class
    assert bool(remarks([result])) is one_class
