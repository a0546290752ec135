"""A site leaves a chain: the head is bit for bit that of a federation without it, and nothing of it stays."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.config import JobConfig
from fedmr_med.export.card import make_card, markdown
from fedmr_med.export.source import Source
from fedmr_med.files import journal
from fedmr_med.models.model_file import load_model, sha256_of
from fedmr_med.runner import Federation
from fedmr_med.secure.cohort import Cohort
from fedmr_med.server.chain import BEST_MODEL, CHECKPOINT, EVENTS, PREVIOUS, Chain
from fedmr_med.server.kept_head import TOTAL, KeptHead
from fedmr_med.server.state import GlobalState
from fedmr_med.site.client_state import CLIENT_STATE
from fedmr_med.site.secure import COHORT_FILE
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, small_job
from tests.helpers.transports import demo_sites, outcome

SITES = ("bcn", "msk", "rosendahl", "vienna-dias")
ONESHOT: dict[str, Any] = {
    "federation": {"rounds": 0, "min_sites": 3},
    "head": {"exchange": "last", "keep": True, "held_out": 0.3},
}
PLAIN = small_job("fedavg", **ONESHOT)
SECURE = PLAIN.override({"federation": {"secure": "statistics"}})

Run = tuple[Path, GlobalState]


def without(job: JobConfig, *sites: str) -> JobConfig:
    return job.override({"federation": {"without": list(sites)}})


def others(*left: str) -> tuple[str, ...]:
    return tuple(name for name in SITES if name not in left)


def accept(folder: Path, sites: tuple[str, ...]) -> None:
    """Let a person at each of the sites accept their cohort."""
    for name in sites:
        Cohort(folder / CLIENT_STATE / name / COHORT_FILE).accept(sites, by="a test")


def kept(folder: Path) -> set[str]:
    """Return the files of statistics that the server has."""
    return {path.stem for path in (folder / "head").iterdir()}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("plain") / "chain"
    return folder, Federation(PLAIN, demo_sites(*SITES), folder).run()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("secure") / "chain"
    return folder, Federation(SECURE, demo_sites(*SITES), folder).run()


def copy_of(run: Run, to: Path) -> Path:
    return Path(shutil.copytree(run[0], to))


@pytest.mark.parametrize("site", SITES)
def test_the_model_is_to_the_bit_that_of_a_federation_without_the_site(site: str, plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    left = Federation(without(PLAIN, site), demo_sites(*SITES), folder).run()
    never = Federation(PLAIN, demo_sites(*others(site)), tmp_path / "never").run()
    assert outcome(left) == outcome(never), "scored by the others alone as well"
    assert outcome(left) != outcome(plain[1])
    made, expected = (load_model(path / BEST_MODEL) for path in (folder, tmp_path / "never"))
    assert all(np.array_equal(made.model[name], expected.model[name]) for name in expected.model)
    assert made.temperature == expected.temperature


def test_sites_leave_one_after_the_other_and_stay_out_though_a_later_job_does_not_say_so(
    plain: Run, tmp_path: Path
) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    Federation(without(PLAIN, "bcn"), demo_sites(*SITES), folder).run()
    both = Federation(without(PLAIN, "msk"), demo_sites(*SITES), folder).run()
    two = PLAIN.override({"federation": {"min_sites": 2}})
    never = Federation(two, demo_sites(*others("bcn", "msk")), tmp_path / "never").run()
    assert outcome(both) == outcome(never)
    again = Federation(PLAIN, demo_sites(*SITES), folder).run()
    assert outcome(again) == outcome(never)
    assert again.history.left == {"bcn", "msk"}


def test_the_files_of_a_site_that_left_are_gone(plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    files = plain[1].history.head.kept
    assert kept(folder) == set(files.values())
    left = Federation(without(PLAIN, "bcn"), demo_sites(*SITES), folder).run()
    assert kept(folder) == {files[name] for name in others("bcn")}
    assert left.history.head.kept.keys() == set(others("bcn"))


def test_no_way_back_brings_a_site_in_again(plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    chain, transport = Chain(folder, without(PLAIN, "bcn"), id="runner"), None
    from fedmr_med.exchange.leaving import take_out

    state = take_out(chain.open(), transport, chain)
    chain.close()
    assert state.history.left == {"bcn"}
    assert not (folder / PREVIOUS).exists()
    with raises("file.missing"):
        back = PLAIN.override({"federation": {"resume_from": "previous"}})
        Chain(folder, back, id="runner").open()


def test_results_model_file_and_card_tell_the_lineage(plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    first = sha256_of(folder / BEST_MODEL)
    Federation(without(PLAIN, "bcn"), demo_sites(*SITES), folder).run()
    second = sha256_of(folder / BEST_MODEL)
    state = Federation(without(PLAIN, "bcn", "msk"), demo_sites(*SITES), folder).run()
    told = load_model(folder / BEST_MODEL).lineage
    assert told == state.history.withdrawn
    assert [(left.site, left.models[-1], left.retrain_from) for left in told] == [
        ("bcn", first, None),
        ("msk", second, None),
    ]
    assert second != sha256_of(folder / BEST_MODEL)
    card = make_card(Source.open(folder / BEST_MODEL))
    page = markdown(card)
    assert len(card.lineage) == 2
    assert first in page
    assert second in page
    notes = [entry for entry in journal.read(folder / EVENTS).entries if entry["event"] == "withdraw"]
    assert [(note["site"], note["exact"]) for note in notes] == [("bcn", "yes"), ("msk", "yes")]


def test_a_site_that_has_opted_out_leaves_and_the_head_stays(tmp_path: Path) -> None:
    sites = demo_sites(*SITES, bcn=CLOSED)
    before = Federation(PLAIN, sites, tmp_path / "chain").run()
    left = Federation(without(PLAIN, "bcn"), sites, tmp_path / "chain").run()
    never = Federation(PLAIN, demo_sites(*others("bcn")), tmp_path / "never").run()
    assert outcome(left) == outcome(never)
    assert before.history.head.sites == left.history.head.sites
    assert left.history.withdrawn[0].models == (), "no model ever held it"


def test_a_chain_that_kept_nothing_says_so_and_stays_as_it_is(tmp_path: Path) -> None:
    job = PLAIN.override({"head": {"keep": False}})
    Federation(job, demo_sites(*SITES), tmp_path).run()
    before = (tmp_path / CHECKPOINT).read_bytes()
    assert not (tmp_path / "head").exists()
    with raises("withdraw.nothing-kept"):
        Federation(without(job, "bcn"), demo_sites(*SITES), tmp_path).run()
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_a_site_without_a_part_in_the_chain_cannot_leave_it(plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    with raises("withdraw.no-part"):
        Federation(without(PLAIN, "vidir-molemax"), demo_sites(*SITES), folder).run()


def test_kept_statistics_that_were_changed_are_not_used(plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    files = plain[1].history.head.kept
    path = folder / "head" / f"{files['msk']}.pt"
    path.write_bytes((folder / "head" / f"{files['rosendahl']}.pt").read_bytes())
    with raises("checkpoint.form"):
        Federation(without(PLAIN, "bcn"), demo_sites(*SITES), folder).run()
    path.write_bytes(path.read_bytes()[:-100])
    with raises("file.unreadable"):
        Federation(without(PLAIN, "bcn"), demo_sites(*SITES), folder).run()


def test_a_crash_between_the_files_and_the_checkpoint_leaves_the_old_ones_in_force(plain: Run, tmp_path: Path) -> None:
    folder = copy_of(plain, tmp_path / "chain")
    files = plain[1].history.head.kept
    stray = KeptHead.of(folder).write("bcn", KeptHead.of(folder).read("bcn", files["bcn"]))
    assert stray in kept(folder)
    chain = Chain(folder, PLAIN, id="runner")
    chain.open()
    chain.close()
    assert kept(folder) == set(files.values())


def test_of_a_chain_that_trained_it_says_from_where_to_retrain(tmp_path: Path) -> None:
    job = small_job("fedavg", federation={"rounds": 2, "min_sites": 2}, head={"exchange": "last", "keep": True})
    Federation(job, demo_sites(*others("bcn")), tmp_path).run()
    state = Federation(without(job, "msk"), demo_sites(*SITES), tmp_path).run()
    left = state.history.withdrawn[0]
    assert (left.site, left.retrain_from) == ("msk", 0)
    assert "retrain from round 0" in left.text
    assert "msk" not in state.history.head.sites
    assert load_model(tmp_path / BEST_MODEL).lineage == (left,)


@pytest.mark.slow
@pytest.mark.parametrize("site", ["bcn", "vienna-dias"])
def test_a_site_takes_its_part_out_of_a_secure_total(site: str, secure: Run, tmp_path: Path) -> None:
    folder = copy_of(secure, tmp_path / "chain")
    assert secure[1].history.head.kept.keys() == {TOTAL}
    accept(folder, others(site))
    left = Federation(without(SECURE, site), demo_sites(*SITES), folder).run()
    never = Federation(SECURE, demo_sites(*others(site)), tmp_path / "never").run()
    assert outcome(left) == outcome(never)
    assert kept(folder) == {left.history.head.kept[TOTAL]}
    assert kept(folder) != kept(secure[0])


def test_a_secure_total_of_too_few_sites_is_not_made(secure: Run, tmp_path: Path) -> None:
    folder = copy_of(secure, tmp_path / "chain")
    accept(folder, others("bcn"))
    Federation(without(SECURE, "bcn"), demo_sites(*SITES), folder).run()
    before = kept(folder)
    with raises("withdraw.too-few"):
        Federation(without(SECURE, "msk"), demo_sites(*SITES), folder).run()
    assert kept(folder) == before


def test_a_site_that_is_gone_stays_in_a_secure_total(secure: Run, tmp_path: Path) -> None:
    folder = copy_of(secure, tmp_path / "chain")
    with raises("withdraw.no-vector"):
        Federation(without(SECURE, "bcn"), demo_sites(*others("bcn")), folder).run()
    assert kept(folder) == set(secure[1].history.head.kept.values())
