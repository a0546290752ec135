"""The page about an audit: table, map and chart, alone or beside a run."""

import re
from pathlib import Path

from fedmr_med.evaluation.results import write_result
from fedmr_med.privacy.findings import Audit, Finding, OfSize
from fedmr_med.report.document import write_report
from fedmr_med.report.elements import DEMO_NOTE
from fedmr_med.report.pages.attacks import audit_lines
from fedmr_med.report.sources import Attacks, ChainRun, find_sources
from tests.helpers.errors import raises
from tests.helpers.reports import write_chain

SUCCESS = {("class counts", "none"): 1.0, ("class counts", "secure"): 0.0}
SUCCESS |= {("inversion <b>", "none"): 0.25, ("inversion <b>", "secure"): 0.125}


def made_up(**changes: object) -> Audit:
    """Return an audit of two attacks and two defences."""
    found = tuple(Finding(defence=d, attack=a, success=value) for (a, d), value in SUCCESS.items())
    sizes = (OfSize(images=1, nearest=1, membership=1, inversion=0.5), OfSize(images=5, nearest=0.2, membership=0.1))
    audit = Audit(
        site="msk",
        images=(20, 6),
        classes={"NV": 20},
        demo=False,
        trained="small_cnn",
        noise=2,
        epsilon=2.17,
        cohort=("north", "south"),
        findings=found,
        sizes=sizes,
    )
    return audit.model_copy(update=changes)


def test_the_page_has_the_worst_attack_the_map_and_the_sizes(tmp_path: Path) -> None:
    write_result(tmp_path / "audit.json", made_up())
    (found,) = write_report([tmp_path / "audit.json"], tmp_path / "page.html")
    assert isinstance(found, Attacks)
    html = (tmp_path / "page.html").read_text()
    assert re.search(r">class counts</td><td [^>]*>1\.00</td>", html)
    assert re.search(r"inversion &lt;b&gt;</th><td[^>]*>0\.25</td><td[^>]*>0\.12<", html)
    assert 'class="miss5">1.00' in html
    assert "epsilon 2.17 for one release" in html and "north, south" in html
    assert "Prototypes of so many images" in html
    assert "<b>" not in html and DEMO_NOTE not in html


def test_a_run_and_its_audit_are_one_report(tmp_path: Path) -> None:
    run = write_chain(tmp_path / "run")
    write_result(run / "audit.json", made_up(demo=True))
    assert {type(source) for source in find_sources(run)} == {ChainRun, Attacks}
    write_result(tmp_path / "elsewhere.json", made_up())
    sources = write_report([run, tmp_path / "elsewhere.json"], tmp_path / "page.html")
    assert [type(source) for source in sources].count(Attacks) == 2
    html = (tmp_path / "page.html").read_text()
    assert "Privacy audit of msk" in html and "balanced accuracy" in html and DEMO_NOTE in html


def test_a_damaged_audit_is_said(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text('{"findings": [], "schema_version": 1}')
    with raises("config.missing", "site"):
        find_sources(tmp_path)


def test_the_table_for_the_terminal_has_a_row_for_each_attack() -> None:
    lines = audit_lines(made_up())
    assert any(line.split()[-2:] == ["1.00", "0.00"] and line.startswith("class counts") for line in lines)
    assert lines[-1].split() == ["5", "0.20", "0.10", "-"]
