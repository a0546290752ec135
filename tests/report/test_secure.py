"""Where statistics were summed securely, no page claims to know which hospital shared what."""

from pathlib import Path

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord, SecureRecord, SiteRound
from fedmr_med.evaluation.results import RunResult, RunSetup
from fedmr_med.report.pages import hospitals, privacy
from fedmr_med.report.sources import ChainRun


def chain(secure: SecureRecord | None) -> ChainRun:
    sites = {"north": SiteRound(samples=10, shared_classes=(), bytes_up=1, bytes_down=1)}
    history = History(rounds=(RoundRecord(round=1, sites=sites, secure=secure),))
    setup = RunSetup(dataset="isic2019", split=None, method="fedmr", seed=0, class_names=("MEL", "NV"))
    return ChainRun(Path(), RunResult.of(setup, history, whole=True))


def test_a_secure_chain_has_a_total_and_no_map_of_who_shared_what() -> None:
    run = chain(SecureRecord(sites=("north",)))
    assert hospitals.sharing(run) is None
    assert "nobody can tell" in privacy.page(run).body
    assert "sent no class prototypes" not in privacy.page(run).body


def test_a_plain_chain_says_who_sent_nothing() -> None:
    assert "north sent no class prototypes" in privacy.page(chain(None)).body
