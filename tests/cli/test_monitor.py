"""The watch after release on the command line: two hospitals predict, sum up and compare; attacks on the journal."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedmr_med
from fedmr_med.data.demo.pictures import draw
from fedmr_med.evaluation.usage import GROUPS
from tests.helpers.command_line import run
from tests.helpers.errors import printed_fault
from tests.helpers.models import small_run

CLASSES = 8
HOSPITALS = ("bcn", "vidir")
USUAL, OTHER = (6, 6, 6, 6, 3, 2, 1, 0), (0, 0, 1, 2, 3, 3, 12, 12)
"""Weights of the classes in a month of pictures."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("run")) / "best_model.pt"


class Clinic:
    """The two hospitals, month by month: pictures of the demo, the real commands, a clock that is set."""

    def __init__(
        self, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.model, self.folder, self._patch, self._capsys = model, folder, monkeypatch, capsys

    def call(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        assert run(self._patch, *map(str, arguments), "--json") == code
        said: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return said

    def journal(self, site: str) -> Path:
        return self.folder / f"{site}.jsonl"

    def month(self, number: int, site: str, images: int, weights: Sequence[int]) -> Path:
        """Predict a month of pictures at a hospital, and return its summary."""
        pictures = self.folder / f"{site}-{number}"
        pictures.mkdir()
        random = np.random.default_rng([number, HOSPITALS.index(site)])
        labels = random.choice(CLASSES, images, p=np.array(weights) / sum(weights))
        for index, label in enumerate(labels):
            own = np.random.default_rng([number, HOSPITALS.index(site), index])
            Image.fromarray(draw(int(label), 0, [own], 48)[0]).save(pictures / f"{index}.png")
        stamp = f"2026-{number:02}-15T09:00:00Z"
        self._patch.setattr(
            "fedmr_med.inference.journal.time", SimpleNamespace(strftime=lambda *_: stamp, gmtime=lambda: None)
        )
        self.call("predict", self.model, pictures, "-o", self.folder / "p.csv", "--journal", self.journal(site))
        self.summarize(site, number)
        return self.folder / f"{site}-{number}.json"

    def summarize(self, site: str, number: int, *more: object, code: int = 0) -> dict[str, Any]:
        days = ["--since", f"2026-{number:02}-01", "--until", f"2026-{number:02}-28", "--site", site]
        out = ["-o", self.folder / f"{site}-{number}.json", "--journal", self.journal(site)]
        return self.call("monitor", "summarize", self.model, *days, *out, *more, code=code)


@pytest.fixture
def clinic(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Clinic:
    return Clinic(model, tmp_path, monkeypatch, capsys)


def test_a_shifted_month_raises_the_alarm_and_a_usual_one_does_not(clinic: Clinic) -> None:
    reference = clinic.folder / "reference.json"
    clinic.call("monitor", "add", *(clinic.month(1, site, 240, USUAL) for site in HOSPITALS), "-o", reference)
    usual = [clinic.month(2, site, 120, USUAL) for site in HOSPITALS]
    said = clinic.call("monitor", "compare", reference, *usual)
    assert not said["alarm"] and {change["site"] for change in said["changes"]} == {*HOSPITALS, "all together"}
    shifted = [clinic.month(3, "bcn", 120, USUAL), clinic.month(3, "vidir", 120, OTHER)]
    said = clinic.call("monitor", "compare", reference, *shifted, code=1)
    alarms = {(change["site"], change["of"]) for change in said["changes"] if change["alarm"]}
    assert ("vidir", "answers") in alarms and "bcn" not in {site for site, _ in alarms}
    both = clinic.call("monitor", "compare", reference, usual[0], shifted[1], "--least", 100)
    assert not both["alarm"] and both["not_compared"] == []
    alone = clinic.call("monitor", "compare", usual[0], shifted[1], shifted[0])
    assert alone["not_compared"] == ["vidir"]


def test_the_summary_is_what_the_model_answered_as_far_as_the_rule_of_small_cells_allows(clinic: Clinic) -> None:
    summary = json.loads(clinic.month(1, "bcn", 90, USUAL).read_text())["usage"]["bcn"]
    predictor = fedmr_med.load_model(clinic.model)
    found = predictor.predict(clinic.folder / "bcn-1")
    answers = Counter(predictor.class_names[one.probabilities.argmax()] for one in found)
    assert summary["images"] == 90 and list(summary["confidence"]) == list(GROUPS)
    told = {name: count for name, count in summary["answers"].items() if count is not None}
    assert told and all(count >= 11 and count == answers[name] for name, count in told.items())
    for counts in (summary["answers"], summary["confidence"]):
        rest = 90 - sum(count or 0 for count in counts.values())
        assert rest == 0 or rest >= 11, "what is held back does not follow from the total"
    (clinic.folder / "site.yaml").write_text(
        "data: {source: demo, center: 0}\npolicy: {min_cell_count: 1, min_class_count: 1}\n"
    )
    everything = clinic.summarize("bcn", 1, "--policy", clinic.folder / "site.yaml")["usage"]["bcn"]
    assert everything["answers"] == {name: answers[name] for name in predictor.class_names}
    assert sum(everything["confidence"].values()) == 90


def test_an_image_counts_once_and_only_in_its_period(clinic: Clinic) -> None:
    before = clinic.month(1, "bcn", 40, USUAL).read_text()
    arguments = ["predict", clinic.model, clinic.folder / "bcn-1", "-o", clinic.folder / "p.csv"]
    clinic.call(*arguments, "--journal", clinic.journal("bcn"))
    clinic.summarize("bcn", 1)
    assert (clinic.folder / "bcn-1.json").read_text() == before
    for more in ((2,), (1, "--use", "evaluate")):
        assert clinic.summarize("bcn", *more, code=2)["error"]["code"] == "data.empty"
    other = shutil.copy(clinic.model.parent / "checkpoint.pt", clinic.folder / "other.pt")
    days = ["--since", "2026-01-01", "--until", "2026-01-31", "--journal", clinic.journal("bcn")]
    assert clinic.call("monitor", "summarize", other, *days, code=2)["error"]["code"] == "data.empty"


def test_too_few_images_make_no_summary(clinic: Clinic) -> None:
    clinic.month(1, "bcn", 40, USUAL)
    few = clinic.journal("vidir")
    few.write_bytes(b"".join(clinic.journal("bcn").read_bytes().splitlines(keepends=True)[:10]))
    assert clinic.summarize("vidir", 1, code=2)["error"]["code"] == "data.empty"
    assert not (clinic.folder / "vidir-1.json").exists()


def test_a_changed_journal_is_found(clinic: Clinic) -> None:
    clinic.month(1, "bcn", 20, USUAL)
    path = clinic.journal("bcn")
    head = clinic.summarize("bcn", 1)["head"]
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    answer = json.loads(lines[5])["answer"].encode()
    attacks = {
        "changed": [*lines[:5], lines[5].replace(b'"answer": "' + answer, b'"answer": "X'), *lines[6:]],
        "taken out": [*lines[:5], *lines[6:]],
        "put in": [*lines[:5], lines[3], *lines[5:]],
    }
    for attacked in attacks.values():
        path.write_bytes(b"".join(attacked))
        assert clinic.summarize("bcn", 1, code=2)["error"]["code"] == "record.changed"
    path.write_bytes(b"".join(lines[:-1]))
    clinic.summarize("bcn", 1)  # whose end was cut off: only who noted the head can tell
    assert clinic.summarize("bcn", 1, "--head", head, code=2)["error"]["code"] == "record.changed"
    path.write_bytes(whole)
    clinic.summarize("bcn", 1, "--head", head)


def test_days_in_the_wrong_order_are_said(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    days = ["--since", "2026-02-01", "--until", "2026-01-01"]
    assert run(monkeypatch, "monitor", "summarize", str(model), *days, "--json") == 2
    assert printed_fault(capsys) == ("config.value", "--until")


def test_people_read_what_moved(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = clinic.month(1, "bcn", 240, USUAL), clinic.month(2, "bcn", 240, OTHER)
    assert run(monkeypatch, "monitor", "compare", str(before), str(after)) == 1
    first = capsys.readouterr().out.splitlines()[0].split()
    assert first[:4] == ["ALARM", "bcn", "answers", "PSI"]
    classes = fedmr_med.load_model(clinic.model).class_names
    assert set(first) & {f"{name}," for name in classes}
