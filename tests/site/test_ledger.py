"""The privacy budget is spent before anything is sent, and nobody gets it back."""

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest

from fedmr_med.errors import PolicyError
from fedmr_med.privacy.accountant import Noisy, PrivacyBudget, epsilon
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.site.ledger import Ledger, Ledgers
from tests.helpers.errors import raises

BUDGET = PrivacyBudget(epsilon=4.0)


def ledger(folder: Path) -> Ledger:
    return Ledger(folder / "site" / "ledger.jsonl", folder / "elsewhere" / "witness.json")


def spend(book: Ledger, release: str = "train-0", noise: float = 2.0, budget: PrivacyBudget | None = BUDGET) -> bool:
    return book.spend(budget, chain="chain", release=release, noise=noise, classes=["NV"])


def test_releases_are_refused_once_the_next_one_would_go_over_the_budget(tmp_path: Path) -> None:
    spent = [spend(ledger(tmp_path), f"train-{number}") for number in range(6)]
    allowed = sum(spent)
    assert spent == [True] * allowed + [False] * (6 - allowed)
    assert epsilon([2.0] * allowed) <= BUDGET.epsilon < epsilon([2.0] * (allowed + 1))
    assert ledger(tmp_path).total(1e-5) == pytest.approx(epsilon([2.0] * allowed))


def test_too_little_noise_is_refused_whatever_is_left(tmp_path: Path) -> None:
    assert not spend(ledger(tmp_path), noise=0.1, budget=PrivacyBudget(epsilon=1000))
    assert not ledger(tmp_path).path.exists()


def test_the_same_release_is_spent_for_again_in_every_chain(tmp_path: Path) -> None:
    for _ in range(2):
        assert spend(ledger(tmp_path), noise=4.0)
    assert ledger(tmp_path).total(1e-5) == pytest.approx(epsilon([4.0, 4.0]))


def killed(folder: Path) -> None:
    spend(ledger(folder))
    os.kill(os.getpid(), signal.SIGKILL)  # after the budget was written, before anything could be sent


def test_a_process_killed_before_it_sends_has_spent(tmp_path: Path) -> None:
    for _ in range(2):
        process = multiprocessing.get_context("fork").Process(target=killed, args=(tmp_path,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert ledger(tmp_path).total(1e-5) == pytest.approx(epsilon([2.0] * 2))


def test_an_old_copy_of_the_folder_is_refused(tmp_path: Path) -> None:
    site = tmp_path / "site"
    spend(ledger(tmp_path))
    shutil.copytree(site, tmp_path / "backup")
    spend(ledger(tmp_path), "train-1", noise=4.0)
    shutil.rmtree(site)
    shutil.copytree(tmp_path / "backup", site)
    with pytest.raises(PolicyError, match="put the latest copy back"):
        spend(ledger(tmp_path), "train-2", noise=4.0)
    shutil.rmtree(site)
    with raises("record.not-latest"):
        spend(ledger(tmp_path), "train-2", noise=4.0)


def test_a_ledger_killed_between_its_two_writes_goes_on(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    spend(book, noise=4.0)
    assert book.witness is not None
    before = book.witness.read_text()
    spend(book, noise=4.0)
    book.witness.write_text(before)
    assert spend(book, noise=8.0)
    assert json.loads(book.witness.read_text())["number"] == 3


@pytest.mark.parametrize("change", ["line", "witness gone", "witness damaged"])
def test_what_was_changed_by_hand_stops_releases(tmp_path: Path, change: str) -> None:
    book = ledger(tmp_path)
    for noise in (4.0, 5.0):
        spend(book, noise=noise)
    assert book.witness is not None
    if change == "line":
        book.path.write_text(book.path.read_text().replace("4.0", "400.0"))
    elif change == "witness gone":
        book.witness.unlink()
    else:
        book.witness.write_text("{}")
    with pytest.raises(PolicyError):
        spend(book, noise=8.0)


def test_steps_of_training_are_counted_with_the_rate_of_their_draws(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for number in range(2):
        assert book.spend(BUDGET, chain="chain", release=f"train-{number}", noise=1.0, rate=0.01, steps=50)
    assert ledger(tmp_path).total(1e-5) == pytest.approx(epsilon([Noisy(1.0, 0.01, 100)]))
    assert not book.spend(BUDGET, chain="chain", release="train-2", noise=1.0, rate=0.5, steps=50)


def test_one_total_over_both_ledgers_and_none_without_budgets(tmp_path: Path) -> None:
    both = Ledgers.of(tmp_path, tmp_path / "elsewhere" / "witness.json")
    assert both.sums.spend(None, chain="a", release="train-0", noise=2.0, classes=["NV"])
    assert both.training.spend(None, chain="a", release="train-0", noise=1.0, rate=0.01, steps=50)
    assert both.costs(SitePolicy()) == {}, "noise is no guarantee where nothing is demanded"
    assert both.costs(SitePolicy(privacy=BUDGET)) == {"epsilon": pytest.approx(epsilon([2.0]))}
    strict = PrivacyBudget(epsilon=4.0, delta=1e-6)
    assert both.costs(SitePolicy(privacy=BUDGET, training_privacy=strict)) == {
        "epsilon": pytest.approx(epsilon([2.0])),
        "training_epsilon": pytest.approx(epsilon([Noisy(1.0, 0.01, 50)], 1e-6)),
        "total_epsilon": pytest.approx(epsilon([2.0, Noisy(1.0, 0.01, 50)], 1e-6)),
    }
