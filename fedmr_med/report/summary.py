"""The tables at the end of a run."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.history import Best, History
from fedmr_med.evaluation.records import SiteRound, SurveyRecord
from fedmr_med.methods.label import label_of
from fedmr_med.methods.plan import head_exchange
from fedmr_med.privacy.explain import UPDATE_SPEAKS
from fedmr_med.report.console import wide_console
from fedmr_med.report.elements import DEMO_NOTE
from fedmr_med.report.lines import megabytes
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.robust import offences
from fedmr_med.server.state import GlobalState
from fedmr_med.server.stopping import stop_reason, why_it_cannot

HELD_BACK = "held back"


def print_summary(state: GlobalState, job: JobConfig, checkpoint: Path, *, demo: bool) -> None:
    """Print what came out of a run to standard output."""
    wide_console(120).print(summary(state, job, checkpoint, demo=demo), crop=False)  # paths stay whole


def summary(state: GlobalState, job: JobConfig, checkpoint: Path, *, demo: bool) -> Group:
    """Return the tables: scores by round, and what each hospital took part with."""
    history = state.history
    if history.survey is not None:
        lines = [Text(f"\n{job.name}: what the hospitals hold", style="bold"), *_survey(history.survey, job)]
        return Group(*lines, *_files(history, checkpoint), *([Text(DEMO_NOTE, style="bold yellow")] if demo else []))
    parts: list[RenderableType] = [
        Text(f"\n{job.name}: {label_of(job)}, {job.model.name}, {state.round} rounds", style="bold"),
        scores_table(history, job.task.class_names),
        *([sites_table(history)] if history.rounds else []),
    ]
    if reason := stop_reason(job.federation.stop, history):
        parts.append(Text(f"stopped after round {state.round} of {job.federation.rounds}: {reason}"))
    elif problem := why_it_cannot(job.federation.stop, history):
        parts.append(Text(problem, style="bold yellow"))
    if not history.rounds and not history.evaluations and not history.head:
        parts.append(Text("no site shared statistics, so there is no closed-form head and nothing to score"))
    if history.head and not history.rounds and job.model.options.get("pretrained", "none") == "none":
        parts.append(Text("no round trained the network and it has no pretrained weights: its features are random"))
    old = [
        f"{name} {age}"
        for name, age, known in zip(
            job.task.class_names, state.prototypes.age.tolist(), state.prototypes.available.tolist(), strict=True
        )
        if known and age
    ]
    if old:
        parts.append(Text(f"prototypes that nobody shared of late, with the rounds since: {', '.join(old)}"))
    parts += _head_lines(history, job)
    for site, rounds in sorted(offences(history).items()):
        if rounds > 1:
            text = f"{site} was refused in its last {rounds} rounds: talk to it before you use this model"
            parts.append(Text(text, style="bold yellow"))
    if history.best:
        parts.append(Text(kept_line(history.best)))
    parts += [Text(left.text) for left in history.withdrawn]
    if reason := history.why_last(job.task.class_names):
        parts.append(Text(reason, style="bold yellow"))
    parts += _files(history, checkpoint)
    if demo:
        parts.append(Text(DEMO_NOTE, style="bold yellow"))
    return Group(*parts)


def _survey(record: SurveyRecord, job: JobConfig) -> list[RenderableType]:
    """Return the training images by hospital and class, and who tells nothing."""
    names = job.task.class_names
    table = Table(title="Training images; 0 is none, or too few to tell")
    table.add_column("hospital")
    for name in (*names, "all"):
        table.add_column(name, justify="right")
    total = {} if record.total is None else {"all together": record.total}
    for site, held in (record.sites | total).items():
        table.add_row(site, *map(str, held.train), str(sum(held.train)))
    silent = [f"{site} tells nothing (policy.share_survey)" for site in record.silent]
    refused = [f"the answer of {site} did not count: {reason}" for site, reason in record.refused.items()]
    return [table, *map(Text, [*silent, *refused])]


def _head_lines(history: History, job: JobConfig) -> list[RenderableType]:
    """Return what came of the closed-form head."""
    parts: list[RenderableType] = []
    if history.head and history.head.evaluation and history.head.evaluation.pooled:
        score = history.head.evaluation.pooled.text()
        sent = megabytes(history.head.bytes_up)
        parts.append(
            Text(f"with a closed-form head from {len(history.head.sites)} sites' statistics ({sent}): {score}")
        )
    if history.head:
        parts += [
            Text(f"{site} is not in the closed-form head: {reason}", style="bold yellow")
            for site, reason in history.head.refused.items()
        ]
        if history.head.limited:
            sites = ", ".join(history.head.limited)
            parts.append(Text(f"held to three times the usual number of images in the closed-form head: {sites}"))
    elif history.rounds and head_exchange(job) != "none":
        why = history.no_head or "the server's log says why"
        parts.append(Text(f"there is no closed-form head: {why}", style="bold yellow"))
    return parts


def kept_line(best: Best) -> str:
    """Return which model is kept."""
    head = ", with its closed-form head" if best.head else ""
    if best.balanced_accuracy is None:
        return f"last model: after round {best.round}{head}"
    return f"best model: after round {best.round}{head}, balanced accuracy {best.balanced_accuracy:.3f}"


def _files(history: History, checkpoint: Path) -> list[Text]:
    """Return where everything is, and what to do with the model, in lines that are never broken: paths get copied."""
    lines = [f"checkpoint: {checkpoint}", f"results:    {checkpoint.parent / 'results.json'}"]
    if history.best:
        model = checkpoint.parent / BEST_MODEL
        lines += [f"model:      {model}", f"next:       fedmr-med predict {model} IMAGES"]
    return [Text(line, no_wrap=True, overflow="ignore") for line in lines]


def scores_table(history: History, class_names: Sequence[str]) -> Table:
    """Return the score of the global model per hospital and pooled, by round, and of its last head."""
    table = Table(title="Mean recall of the global model on each hospital's test images; (k/K) over k of K classes")
    table.add_column("after round")
    rows = [(str(evaluation.round), evaluation) for evaluation in history.evaluations]
    if history.head and history.head.evaluation:
        rows.append((f"{history.head.round}, with head", history.head.evaluation))
    scored = {site for _, evaluation in rows for site in evaluation.sites}
    sites = sorted(scored | history.sites)
    for site in [*sites, "pooled"]:
        table.add_column(site, justify="right")
    for label, evaluation in rows:
        scores = [evaluation.sites.get(site) for site in sites] + [evaluation.pooled]
        missing = ["-" if site in scored else HELD_BACK for site in sites] + ["-"]
        cells = [s.cell() if s else none for s, none in zip(scores, missing, strict=True)]
        table.add_row(label, *cells)
    pooled = rows[-1][1].pooled_sites if rows else ()
    table.caption = f"pooled over {', '.join(pooled) or 'no hospital: none shares per-class scores'}"
    table.caption += f" ({rows[-1][1].coverage})" if pooled else ""
    if rows:
        withheld = {site: score.withheld for site, score in rows[-1][1].sites.items() if score.withheld}
        lines = [f"{site} {' '.join(class_names[i] for i in labels)}" for site, labels in withheld.items()]
        # A hospital that has no image of a class and one that has a few look alike here.
        table.caption += f"; {HELD_BACK}, few or none: {', '.join(lines)}" if lines else ""
        table.caption += f". {why}" if (why := rows[-1][1].why_missing) else ""
    return table


def sites_table(history: History) -> Table:
    """Return which hospital shared what, over all rounds."""
    table = Table(title="What each hospital took part with")
    for column, justify in (
        ("hospital", "left"),
        ("rounds", "right"),
        ("prototypes shared", "left"),
        ("images used", "right"),
        ("skipped", "right"),
        ("up", "right"),
        ("down", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for site in sorted(history.sites):
        taken = history.parts_of(site)
        table.add_row(
            site,
            f"{len(taken)}/{len(history.rounds)}",
            "as a total" if any(record.secure for record in history.rounds) else _shared(taken),
            *_images(taken[-1]),
            megabytes(sum(part.bytes_up for part in taken)),
            megabytes(sum(part.bytes_down for part in taken)),
        )
    for record in history.rounds:
        for site, reason in record.refused.items():
            table.add_row(site, f"refused in {record.round}", reason)
    table.caption = UPDATE_SPEAKS
    return table


def _shared(taken: list[SiteRound]) -> str:
    """Return the classes shared in any round, in the order of the task, or that there were none."""
    classes = dict.fromkeys(name for part in taken for name in part.shared_classes)
    return " ".join(classes) or "none"


def _images(part: SiteRound) -> tuple[str, str]:
    if part.images_total is None or part.images_skipped is None:
        return str(part.samples or "-"), "-"
    return f"{part.images_total - part.images_skipped}/{part.images_total}", str(part.images_skipped)
