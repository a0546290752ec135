"""The attacks of the robustness study do what their names say, and the default stops what it is said to stop."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedmr_med import models
from fedmr_med.data.base import Fold
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.data.loading import Batches
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.lab.studies import poisoning
from fedmr_med.lab.studies.poisoning import ATTACKER, CLEAN, NEVUS, SETTINGS, Attack, Cell, PoisonedSites, run, table
from fedmr_med.runner import Federation
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.training import outputs
from fedmr_med.wire.messages import SiteReply, TrainTask
from tests.helpers.command_line import run as command
from tests.helpers.errors import printed_fault
from tests.helpers.transports import demo_sites

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 1, "min_sites": 4})


@pytest.mark.parametrize(
    "attack",
    [
        *("update x -5", "random model", "prototypes x 100"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("model x 100", "model of zeros")),
    ],
)
def test_the_default_leaves_the_attacker_out(attack: str) -> None:
    assert run(attack, {}, seed=0)[1] == 1


def test_the_default_changes_nothing_without_an_attack() -> None:
    assert run(CLEAN, {}, seed=0) == run(CLEAN, {"max_deviation": None}, seed=0)


@pytest.mark.parametrize("attack", [poisoning.FLIPPED, "prototypes exchanged"])
def test_wrong_labels_show_once_the_sites_have_features_in_common(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 2, "min_sites": 4})
    assert run(attack, {}, seed=0)[1] == 1


def test_updates_turned_round_are_left_out_whoever_sends_them() -> None:
    assert run("update x -1.3", {}, seed=0)[1] == 1
    assert run("update x -1.3 by two sites", {}, seed=0)[1] == 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("attack", "points"),
    [
        ("update x -1.3", 5),
        ("update x -1.3 by two sites", 15),
        ("labels flipped behind right prototypes", 7),
        ("labels flipped behind right prototypes by two sites", 15),
        ("melanomas as nevi with 10^6 images claimed", 17),
        ("labels flipped without prototypes", 18),
    ],
)
def test_attacks_cost_what_the_page_says(attack: str, points: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 5, "min_sites": 4})
    assert 100 * (run(CLEAN, {}, seed=0)[0] - run(attack, {}, seed=0)[0]) <= points


class Backdoor(PoisonedSites):
    """One site puts a patch on every second image and calls it a nevus; its prototypes are of the right images."""

    def reply(self, hospital: Hospital, task: TrainTask) -> SiteReply:
        if hospital.name == ATTACKER:
            hospital.batches.train = marked(hospital, hospital.data.train, slice(1, None, 2))
        return super().reply(hospital, task)


def marked(hospital: Hospital, fold: Fold, which: slice) -> Batches:
    """Return a fold of which some images have the patch and are called nevi."""
    items, labels = np.stack([fold[index] for index in range(len(fold))]), fold.labels.copy()
    items[which, :6, :6] = (255, 0, 255)
    labels[which] = NEVUS
    return Batches.of(Fold(items, labels), hospital.job.task, batch_size=hospital.job.train.batch_size)


def longer(reply: SiteReply, task: TrainTask) -> SiteReply:
    """Return a reply with 1.8 times the update."""
    floats = {name: array for name, array in reply.model.items() if array.dtype.kind == "f"}
    moved = {n: (task.model[n] + 1.8 * (a - task.model[n])).astype(a.dtype) for n, a in floats.items()}
    return replace(reply, model=reply.model | moved)


@pytest.mark.nightly
def test_a_backdoor_is_not_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/robustness.md says: nearly all marked images of other classes are called nevi."""
    monkeypatch.setitem(poisoning.SETTINGS, "federation", {"rounds": 5, "min_sites": 4})
    job, sites = isic_job("fedmr").for_demo().override(SETTINGS), demo_sites(*HOSPITALS)
    called = {}
    for name, attack in (("clean", Attack()), ("attacked", Attack(longer))):
        make = partial(Backdoor if name == "attacked" else PoisonedSites, attack)
        state = Federation(job, sites, tmp_path / name, make_sites=make).run()
        answers = []
        for site in HOSPITALS:
            hospital = Hospital(site, job, sites[site], tmp_path / "scored" / name / site)
            models.load_arrays(hospital.network, state.model)
            logits, _ = outputs(hospital.network, marked(hospital, hospital.data.test, slice(None)))
            answers.append(logits.argmax(1)[hospital.data.test.labels != NEVUS])
        called[name] = float((np.concatenate(answers) == NEVUS).mean())
    assert called["clean"] < 0.5, "the patch alone makes no nevus"
    assert called["attacked"] > 0.9


def test_the_table_has_means_and_costs() -> None:
    cells = [Cell(CLEAN, "default", seed, 0.5, 0) for seed in (0, 1)]
    cells += [Cell("a", "default", seed, 0.4 + seed / 10, 0) for seed in (0, 1)]
    assert table(cells) == [["", "default"], [CLEAN, "50.0"], ["a", "45.0 (-5.0)"]]


def test_names_are_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--attacks", "--rules"):
        assert command(monkeypatch, "robustness", option, "nothing", "--json") == 2
        assert printed_fault(capsys) == ("config.unknown-name", option)
