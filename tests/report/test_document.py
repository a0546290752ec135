"""The report: what it finds, what it says, and that it is one file that asks nobody for anything."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import HeadRecord, RoundRecord
from fedmr_med.evaluation.results import RoundResult, RunResult, RunResults, RunSetup, write_result
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.files import journal
from fedmr_med.privacy.explain import UPDATE_SPEAKS
from fedmr_med.report.document import render, write_report
from fedmr_med.report.elements import DEMO_NOTE
from fedmr_med.report.sources import AuditLog, ChainRun, Comparison, Source, Tables, find_sources
from tests.helpers.browser import CHROMIUM, Page, browser
from tests.helpers.command_line import run
from tests.helpers.errors import printed_fault, raises
from tests.helpers.reports import CLASSES, SITES, made_up_history, part, scores, write_chain


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(find_sources(write_chain(tmp_path_factory.mktemp("chain"))))


def test_the_headline_says_score_who_took_part_and_who_dropped_out(html: str) -> None:
    text = text_of(html)
    assert re.search(r"balanced accuracy 0\.\d{3} \(0\.\d{3} to [01]\.\d{3}\)", text)
    assert re.search(r"AUROC, mean over the classes 0\.\d{3} \(", text)
    assert "Not everybody took part" in text
    assert "ouest took part in 2 of 4 rounds, last in round 2. In round 3 it was refused" in text
    assert "test images of clinica-sur, nord-klinik" in text


def test_every_section_is_there(html: str) -> None:
    names = ("headline", "forest", "curves", "classes", "confusion", "sharing", "prototypes", "losses")
    for name in (*names, "costs", "images", "privacy", "settings"):
        assert f'id="part0-{name}"' in html, name
        assert f'href="#part0-{name}"' in html, name
    text = text_of(html)
    sentences = ("Some scores are held back (", "cannot be read and were left out: 2.", "All settings of the job")
    for said in (*sentences, "opted out", "withheld", "ouest", "min_cell_count", "3 rounds", "seed 7"):
        assert said in text, said
    assert UPDATE_SPEAKS in text


def test_it_is_small_escaped_and_needs_nothing_from_elsewhere(html: str) -> None:
    assert len(html) < 3_000_000
    assert "<b>came late" not in html and "&lt;lesions&gt;" in html
    assert "<script" not in html
    addresses = re.findall(r"""(?:src|href)="([^"]*)"|url\(([^)]*)\)""", html)
    assert [
        address for pair in addresses for address in pair if address and not address.startswith(("#", "data:"))
    ] == []


def test_generated_pictures_are_marked(tmp_path: Path) -> None:
    assert DEMO_NOTE in render(find_sources(write_chain(tmp_path / "demo", demo=True)))


def test_what_folders_hold_is_found(tmp_path: Path) -> None:
    write_chain(tmp_path / "workspace" / "server" / "chains" / "simulate_job")
    (found,) = find_sources(tmp_path / "workspace")
    assert isinstance(found, ChainRun) and found.ages == (0, 3, None)
    only = RoundResult(round=1, accuracy=0.5, balanced_accuracy=0.5, seconds=1, bytes_up=1, bytes_down=1)
    entry = RunResult(dataset="fmnist", split="P5C2", method="fedavg", seed=0, best_accuracy=0.5, rounds=(only,))
    failed = RunResult(dataset="fmnist", split="P5C2", method="fedmr", seed=0, error="no disk")
    write_result(tmp_path / "bench" / "results.json", RunResults(runs=(entry, failed)))
    tables = [{"title": "A", "rows": [{"x": 0.5}]}]
    study = {"title": "Ablation", "budget": "smoke", "stand_ins": True, "tables": tables}
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "study.json").write_text(json.dumps(study))
    (tmp_path / "flamby").mkdir()
    row = {"method": "fedmr", "source": "ours", "bn": "average", "test": "pooled", "seed": 0, "balanced_accuracy": 0.5}
    (tmp_path / "flamby" / "results.json").write_text(json.dumps({"rows": [row], "notes": ["a note"]}))
    line = {"time": "t", "job": "j", "task": "train", "code": "OK", "bytes": 5, "metrics": "scalar"}
    (tmp_path / "kit").mkdir()
    journal.append(tmp_path / "kit" / "released.jsonl", line | {"parts": {"prototypes": {"classes": ["NV"]}}})
    places = [tmp_path / name for name in ("workspace", "bench", "paper", "flamby", "kit")]
    sources = write_report(places, tmp_path / "report.html")
    assert [type(source) for source in sources] == [ChainRun, Comparison, Tables, Tables, AuditLog]
    text = text_of((tmp_path / "report.html").read_text())
    found = ("fedmr, seed 0: no disk", "Ablation (smoke budget)", "a note", "NV (1x)", "cut off at its end leave no")
    for said in found:
        assert said in text, said


def opts_out_in_round(number: int, rounds: int = 4) -> History:
    """Return a chain in which nord-klinik stops to share in a round."""
    history = History().with_evaluation(Evaluation.of(0, {"nord-klinik": scores(9, 0.1), "ouest": scores(1, 0.1)}))
    for done in range(1, rounds + 1):
        still = done < number
        sites = {"nord-klinik": part(done, ("MEL", "NV") if still else ()), "ouest": part(done, ("MEL",))}
        answers = {"nord-klinik": scores(9, 0.4) if still else None, "ouest": scores(1, 0.4 * done)}
        history = history.with_round(RoundRecord(round=done, sites=sites)).with_evaluation(Evaluation.of(done, answers))
    return history


def written(folder: Path, history: History, *labels: str) -> list[Source]:
    """Write results of runs with this history, one for each label, and return what a report finds there."""
    setup = RunSetup(dataset="own", split=None, method="fedmr", seed=0, class_names=CLASSES)
    setups = [setup.model_copy(update={"label": label}) for label in labels or ("",)]
    runs = tuple(RunResult.of(setup, history, whole=True) for setup in setups)
    write_result(folder / "results.json", RunResults(runs=runs))
    return find_sources(folder)


def head_of(done: int, skill: float) -> HeadRecord:
    """Return a head whose model knows the labels the better, the larger ``skill`` is."""
    evaluation = Evaluation.of(done, {"nord-klinik": scores(9, skill), "ouest": scores(1, skill)})
    return HeadRecord(
        round=done, shrinkage=0.1, prior="uniform", sites=SITES, classes=(), bytes_up=1, evaluation=evaluation
    )


def test_an_opt_out_in_mid_run_says_when_it_was_and_what_had_left_before(tmp_path: Path) -> None:
    text = text_of(render(written(tmp_path, opts_out_in_round(3))))
    assert "nord-klinik sent class prototypes in rounds 1 to 2, and none in rounds 3 to 4." in text
    assert "Confusion matrix and score histograms of test images were sent by nord-klinik, ouest." in text
    assert (
        "nord-klinik changed what it shares: confusion matrix and score histograms of test images of the model after "
        "rounds 0 to 2; no score of the model after rounds 3 to 4." in text
    )
    assert "shared until round 2" in text
    assert "Accuracies alone" not in text and "ouest changed" not in text


def test_the_curve_has_the_model_with_its_head(tmp_path: Path) -> None:
    head = head_of(4, 3.0)
    html = render(written(tmp_path, opts_out_in_round(9).with_head(head)))
    value = head.evaluation.pooled.balanced_accuracy
    assert f"all together, with the head: {value:.4g} at rounds done 4" in html
    assert f"{value:.3f}" in text_of(html), "the headline is of the same model"
    assert "A guess among 3 classes has a balanced accuracy of 0.333" in text_of(html)
    assert "ROC curves" in html and "Reliability" in html


def test_a_later_head_is_not_taken_for_the_best_one(tmp_path: Path) -> None:
    history = opts_out_in_round(9)
    for done, skill in ((3, 9.0), (4, 0.1)):
        history = history.with_head(head_of(done, skill))
    best = history.best
    assert best.head and best.round == 3
    (run,) = written(tmp_path, history)
    assert isinstance(run, ChainRun) and run.final == history.evaluations[-1]
    text = text_of(render([run]))
    assert f"after round 3, with its closed-form head, has a balanced accuracy of {best.balanced_accuracy:.3f}" in text
    assert "the best model, after round 4" not in text


def test_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    places = [write_chain(tmp_path / name, name=name) for name in ("one", "two")]
    text = text_of(render([source for place in places for source in find_sources(place)]))
    assert "Side by side" in text
    assert "one (one)" in text and "two (two)" in text


def test_a_model_scored_beside_a_baseline_is_two_runs(tmp_path: Path) -> None:
    history = made_up_history().model_copy(update={"rounds": ()})
    text = text_of(render(written(tmp_path, history, "the model", "trained here alone")))
    assert "scored without training" in text
    assert f"trained here alone ({tmp_path.name})" in text


def test_a_folder_without_results_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with raises("results.empty"):
        find_sources(tmp_path)
    (tmp_path / "results.json").write_text("[1]")
    assert run(monkeypatch, "report", str(tmp_path), "-o", str(tmp_path / "x.html"), "--json") == 2
    assert printed_fault(capsys) == ("file.unreadable", None)


@pytest.fixture(scope="module")
def page(html: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium, to look at the page in a real browser")
    folder = tmp_path_factory.mktemp("browser")
    (folder / "report.html").write_text(html)
    with browser(folder / "profile") as page:
        page.show(width=1200)
        page.open(folder / "report.html")
        yield page


def test_in_a_browser_the_console_is_clean_and_nobody_is_asked(page: Page) -> None:
    assert page.console == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_in_a_browser_the_elements_are_there(page: Page) -> None:
    sections = page.evaluate("[...document.querySelectorAll('main section')].map(e => '#' + e.id)")
    assert len(sections) >= 12
    assert sections == page.evaluate("[...document.querySelectorAll('nav a')].map(e => e.getAttribute('href'))")
    assert page.evaluate("document.querySelectorAll('svg.chart').length") >= 6
    assert page.evaluate("document.querySelectorAll('svg.chart circle title').length") > 20
    names = page.evaluate("[...document.querySelectorAll('svg .name')].map(e => e.textContent)")
    assert names == [*CLASSES, *SITES[:2], "all together", *SITES]


def test_a_screen_reader_finds_names_and_tables(page: Page) -> None:
    labels = "[...document.querySelectorAll('svg.chart')].flatMap(e => e.getAttribute('aria-labelledby').split(' '))"
    links = "[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href').slice(1))"
    for referred in (labels, links):
        assert page.evaluate(f"{referred}.filter(id => !document.getElementById(id))") == []
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_dark_narrow_and_printed(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.show(width=1200, dark=True)
    assert page.evaluate(background) != light
    page.show(width=800, media="print", dark=True)
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.evaluate(background) == light, "on paper, also for who likes it dark"


@pytest.mark.parametrize("width", [1400, 760, 390, 360])
def test_no_table_is_wider_than_the_page(page: Page, width: int) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    page.show(width=width, media="print" if width == 760 else "")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    assert page.evaluate(f"{cut}.map(e => e.getAttribute('aria-label'))") == []
