"""All studies by name, and how one is run and written down."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedmr_med.errors import ConfigError
from fedmr_med.evaluation.results import write_result
from fedmr_med.files import write_text
from fedmr_med.lab.studies.analyses import burden, communication, eigenvalues, heatmap, intra_curve
from fedmr_med.lab.studies.base import BUDGETS, Outcome, Setting, StudyTable
from fedmr_med.lab.studies.tables import accuracy_table
from fedmr_med.lab.studies.toy import motivation, toy
from fedmr_med.registry import check_known
from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import Section, paragraph
from fedmr_med.report.pages.comparison import tables
from fedmr_med.report.sources import Tables
from fedmr_med.schema import Strict

STAND_INS = "A check that the study runs, on generated data. No measured figure here means anything."

STUDIES: dict[str, Callable[[Setting], Outcome]] = {
    **dict.fromkeys(("acc", "larger"), accuracy_table),
    "communication": communication,
    "burden": burden,
    **dict.fromkeys(("lite", "optout", "ablation"), accuracy_table),
    "eigenvalues": eigenvalues,
    **dict.fromkeys(("mu1", "dirichlet", "prototype", "morereal", "one-hot", "margin-free"), accuracy_table),
    "toy": toy,
    "motivation": motivation,
    "intra-curve": intra_curve,
    "heatmap": heatmap,
}


class StudyResult(Strict):
    """The content of ``study.json``: the paper's figures beside the measured ones.

    Attributes:
        stand_ins: whether generated data stood in for datasets.
        differs: what differs from the paper's set-up, a sentence each.
        notes: what the tables alone do not say.
    """

    study: str
    title: str
    budget: str
    stand_ins: bool
    tables: tuple[StudyTable, ...]
    differs: tuple[str, ...]
    notes: tuple[str, ...]


def make_setting(study: str, budget: str, out: Path, *, seeds: Sequence[int] = (), **other: Any) -> Setting:
    """Return the setting of a study and a budget; no seeds take the budget's.

    Raises:
        ConfigError: a name is not known, or no row of the study is asked for.
    """
    check_known(study, STUDIES, "study")
    check_known(budget, BUDGETS, "--budget")
    setting = Setting(study, BUDGETS[budget], out, seeds=tuple(seeds) or BUDGETS[budget].seeds, **other)
    if setting.paper.rows and not setting.rows():
        places = ", ".join(f"{row.dataset} {row.split or ''}".strip() for row in setting.paper.rows)
        why = f"{study} has no row {setting.dataset or ''} {setting.split or ''}; it has {places}."
        raise ConfigError(why, code="config.unknown-name", key="--split")
    return setting


def run_study(setting: Setting) -> StudyResult:
    """Run a study, write ``study.json`` and ``report.html``, and return the former's content.

    Raises:
        ConfigError, DataError: a setting is not valid; data is missing or damaged.
        FedMRError: a run failed.
    """
    outcome = STUDIES[setting.study](setting)
    # Those without rows are about one dataset, or a small example that has none.
    alone = ["cifar10"] if setting.study in ("intra-curve", "heatmap") else []
    datasets = list(dict.fromkeys(row.dataset for row in setting.rows())) or alone
    result = StudyResult(
        study=setting.study,
        title=setting.paper.title,
        budget=setting.budget.name,
        stand_ins=setting.stand_ins and bool(datasets),
        tables=tuple(outcome.tables),
        differs=tuple(setting.differences(datasets)),
        notes=(*outcome.notes, *setting.paper.remarks),
    )
    write_result(setting.out / "study.json", result)
    content = tuple((table.title, tuple(table.rows)) for table in result.tables)
    title = f"{result.title} ({result.budget} budget)"
    sections = [
        *([Section("stand-ins", "Generated data", paragraph(STAND_INS, "loud"))] if result.stand_ins else []),
        *tables(Tables(setting.out, title, content, (*result.differs, *result.notes))),
        *outcome.pictures,
    ]
    write_text(setting.out / "report.html", page_of([Part("study", title, False, tuple(sections))]))
    return result
