"""All studies by name, and how one is run and written down."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text
from fedmr_med.report.html import Page, PageTable, render
from fedmr_med.studies.analyses import burden, communication, eigenvalues, heatmap, intra_curve
from fedmr_med.studies.base import BUDGETS, Cells, Outcome, Setting
from fedmr_med.studies.tables import accuracy_table
from fedmr_med.studies.toy import motivation, toy

STUDIES: dict[str, Callable[[Setting], Outcome]] = {
    "acc": accuracy_table,
    "larger": accuracy_table,
    "communication": communication,
    "burden": burden,
    "lite": accuracy_table,
    "optout": accuracy_table,
    "ablation": accuracy_table,
    "eigenvalues": eigenvalues,
    "mu1": accuracy_table,
    "dirichlet": accuracy_table,
    "prototype": accuracy_table,
    "morereal": accuracy_table,
    "toy": toy,
    "motivation": motivation,
    "intra-curve": intra_curve,
    "heatmap": heatmap,
}


def setting(study: str, budget: str, out: Path, *, seeds: Sequence[int] = (), **other: Any) -> Setting:
    """Return the setting of a study.

    Args:
        study: one of :data:`STUDIES`.
        budget: ``smoke``, ``cpu`` or ``full``.
        out: folder for the results.
        seeds: the seeds to run; none takes the budget's.
        other: see :class:`Setting`.

    Raises:
        ConfigError: a name is not known, or no row of the study is asked for.
    """
    if study not in STUDIES:
        raise ConfigError(f"{study!r} is not a study ({', '.join(STUDIES)}).")
    if budget not in BUDGETS:
        raise ConfigError(f"--budget: {budget!r} is not one of {', '.join(BUDGETS)}.")
    made = Setting(study, BUDGETS[budget], out, seeds=tuple(seeds) or BUDGETS[budget].seeds, **other)
    if "rows" in made.paper and not made.rows():
        places = ", ".join(f"{row['dataset']} {row.get('split') or ''}".strip() for row in made.paper["rows"])
        raise ConfigError(f"{study} has no row {made.dataset or ''} {made.split or ''}; it has {places}.")
    return made


def run_study(where: Setting) -> dict[str, Any]:
    """Run a study, write ``study.json`` and ``report.html``, and return the former's content.

    Raises:
        ConfigError: a setting is not valid.
        DataError: data is missing or damaged.
        FedMRError: a run failed.
    """
    outcome = STUDIES[where.study](where)
    datasets, remarks = _datasets(where), where.paper.get("remarks", [])
    differs = where.differences(datasets)
    content = {
        "study": where.study,
        "title": where.paper["title"],
        "budget": where.budget.name,
        "stand_ins": where.stand_ins and bool(datasets),
        "tables": [{"title": table.title, "rows": list(table.rows)} for table in outcome.tables],
        "differs": differs,
        "notes": [*outcome.notes, *remarks],
    }
    write_text(where.out / "study.json", json.dumps(content, indent=1))
    page = Page(
        title=f"{where.paper['title']} ({where.budget.name} budget)",
        notes=[*differs, *content["notes"]],
        tables=[PageTable(table.title, *as_text(table.rows)) for table in outcome.tables],
        pictures=outcome.pictures,
    )
    write_text(where.out / "report.html", render(page))
    return content


def as_text(rows: Sequence[Cells]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the cells of a table as text."""
    return list(rows[0]), [[str(value) for value in row.values()] for row in rows]


def _datasets(where: Setting) -> list[str]:
    """Return the datasets a study is about; the small examples have none."""
    fixed: dict[str, list[str]] = {"toy": [], "motivation": [], "intra-curve": ["cifar10"], "heatmap": ["cifar10"]}
    if where.study in fixed:
        return fixed[where.study]
    return list(dict.fromkeys(row["dataset"] for row in where.rows()))
