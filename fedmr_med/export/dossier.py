"""The evidence folder of a chain: what was run, by whom, with what, and which questions of a reader are answered where.

What the toolkit cannot know is said to be open; nothing is filled in for people.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from fedmr_med.config import JOB_FILE, JobConfig, load_job
from fedmr_med.errors import DeployError
from fedmr_med.export.card import OPEN, write_card
from fedmr_med.export.source import Source
from fedmr_med.files import write_json, write_text
from fedmr_med.models.model_file import sha256_of
from fedmr_med.report.document import write_report
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.site.approval import in_words, settings_id
from fedmr_med.version import __version__

CARD, REPORT, JOB, PROTECTION = "docs/README.md", "report.html", "job", "data-protection.md"

TRIPOD: tuple[tuple[str, str, str | None], ...] = (
    ("1", "Title", None),
    ("2", "Abstract", None),
    ("3", "Background and known inequalities", None),
    ("4", "Objectives", None),
    ("5", "Data: sources and dates", None),
    ("6", "Participants: setting, eligibility, treatments", None),
    ("7", "Data preparation", f"{JOB} (task.preparation, task.transform), {CARD}: Protocol"),
    ("8", "Outcome: the classes, and who labelled them", None),
    ("9", "Predictors", f"{JOB} (task): one image"),
    ("10", "Sample size", f"{CARD}: numbers of images, as far as hospitals tell"),
    ("11", "Missing data", f"{REPORT}: images that could not be read, as far as hospitals tell"),
    ("12", "Analytical methods", f"{JOB}; {CARD}: Protocol"),
    ("13", "Class imbalance", f"{JOB} (method, loss, head.prior)"),
    ("14", "Fairness", None),
    ("15", "Model output and thresholds", f"{CARD}: Results"),
    ("16", "Training versus evaluation", f"{CARD}: Intended use and limits; {JOB} (train.validation)"),
    ("17", "Ethical approval", None),
    ("18", "Open science: funding, conflicts, protocol, registration, data, code", "sbom.json: code; the rest is open"),
    ("19", "Patient and public involvement", None),
    ("20", "Participants: flow and characteristics", f"{CARD}: hospitals; characteristics are open"),
    ("21", "Model development: participants and events", f"{CARD}: hospitals and classes"),
    ("22", "Model specification", f"{JOB}; digests.json names the model file"),
    ("23", "Model performance and heterogeneity", f"{CARD}: Results; {REPORT}: hospitals"),
    ("24", "Model updating", f"{CARD}: Who left; coordinator.json"),
    ("25", "Interpretation", None),
    ("26", "Limitations", f"{CARD}: Intended use and limits"),
    ("27", "Usability in current care", None),
)
"""The items of TRIPOD+AI (Collins et al., BMJ 2024), and what answers each; None is for people to answer."""


def write_dossier(
    source: Path,
    results: Path,
    out: Path,
    *,
    chain: str,
    acts: Sequence[Mapping[str, Any]] = (),
    approvals: Sequence[Path] = (),
) -> list[Path]:
    """Write the evidence folder and return its files; ``digests.json`` has the SHA-256 of all others.

    Args:
        source: the job folder as it was submitted.
        results: what the chain left.
        acts: the coordinator's acts about the chain.
        approvals: what hospitals hand over of ``site jobs --json``, a file for each.

    Raises:
        DeployError: the chain has left no model.
    """
    model = results / BEST_MODEL
    if not model.exists():
        raise DeployError(f"{results} has no {BEST_MODEL}, so there is nothing to document.", code="chain.no-model")
    job = load_job(min(source.glob(f"*/config/{JOB_FILE}")))
    for path in sorted(source.glob("*/config/*")):
        if path.is_file():
            (out / JOB / path.parts[-3]).mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, out / JOB / path.parts[-3] / path.name)
    write_card(Source.open(model), out)
    write_report([results], out / REPORT)
    write_json(out / "coordinator.json", {"chain": chain, "acts": list(acts)})
    for path in approvals:
        (out / "approvals").mkdir(exist_ok=True)
        shutil.copy2(path, out / "approvals" / path.name)
    write_json(out / "sbom.json", sbom())
    write_text(out / "tripod-ai.md", _items())
    write_text(out / PROTECTION, _protection(job, source, approvals))
    files = sorted(path for path in out.rglob("*") if path.is_file())
    digests = {str(path.relative_to(out)): sha256_of(path) for path in files}
    about = {"chain": chain, "job": job.digest(), "settings": settings_id(job), "model": sha256_of(model)}
    write_json(out / "digests.json", about | {"files": digests})
    return [*files, out / "digests.json"]


def sbom() -> dict[str, Any]:
    """Return the packages that are installed here, in the form of CycloneDX 1.5."""
    found = {str(d.metadata["Name"]): d.version for d in distributions() if d.metadata["Name"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {"type": "application", "name": "fedmr-med", "version": __version__},
        },
        "components": [
            {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name.lower()}@{version}"}
            for name, version in sorted(found.items())
        ],
    }


def _page(title: str, said: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *below: str) -> str:
    """Return a page of Markdown: a sentence, a table, and what follows."""
    head, *body = (f"| {' | '.join(row)} |" for row in (columns, *rows))
    return "\n".join([f"# {title}", "", said, "", head, "|---" * len(columns) + "|", *body, "", *below])


def _items() -> str:
    """Return the page on TRIPOD+AI."""
    rows = [(number, item, where or "**open**") for number, item, where in TRIPOD]
    return _page(
        "TRIPOD+AI, item by item",
        "What is open is for people to answer; the run cannot.",
        ("item", "what", "where it is answered"),
        rows,
        "## Open points of the model card",
        "",
        *(f"- {point}" for point in OPEN),
        "",
    )


def _protection(job: JobConfig, source: Path, approvals: Sequence[Path]) -> str:
    """Return the page on data protection, as far as the job tells."""
    meta = json.loads((source / "meta.json").read_text(encoding="utf-8"))
    named = sorted({place for places in meta["deploy_map"].values() for place in places} - {"server"})
    handed = ", ".join(path.name for path in approvals)
    answers = {
        "Who took part": ", ".join(named),
        "Who left": ", ".join(job.federation.without) or "nobody by this job",
        "Approvals of the hospitals": f"approvals/: {handed}"
        if handed
        else "**open**: hospitals hand over `site jobs`",
        "Policy of each hospital": "**open**: `fedmr-med site policy explain` at each",
        "Legal basis, consent, period of storage": "**open**",
        "Contact of each data-protection officer": "**open**",
    }
    asked = "\n".join(f"- {line}" for line in in_words(job))
    said = f"What was asked of each hospital, in the words that its steward reads:\n\n{asked}"
    return _page(f"Data protection: {job.name}", said, ("question", "answer"), answers.items())
