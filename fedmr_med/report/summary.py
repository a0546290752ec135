"""The tables at the end of a run."""

from collections.abc import Iterator, Sequence
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
from fedmr_med.report.console import text_table, wide_console
from fedmr_med.report.elements import DEMO_NOTE, HELD_BACK
from fedmr_med.report.lines import megabytes
from fedmr_med.server.chain import BEST_MODEL
from fedmr_med.server.robust import offences
from fedmr_med.server.state import GlobalState
from fedmr_med.server.stopping import stop_reason, why_it_cannot


def print_summary(state: GlobalState, job: JobConfig, checkpoint: Path, *, demo: bool) -> None:
    """Print what came out of a run to standard output."""
    wide_console(120).print(summary(state, job, checkpoint, demo=demo), crop=False)  # paths stay whole


def summary(state: GlobalState, job: JobConfig, checkpoint: Path, *, demo: bool) -> Group:
    """Return the tables: scores by round, and what each hospital took part with."""
    history = state.history
    if history.survey is not None:
        title, parts = "what the hospitals hold", [*_survey(history.survey, job)]
    else:
        title = f"{label_of(job)}, {job.model.name}, {state.round} rounds"
        tables = [scores_table(history, job.task.class_names), *([sites_table(history)] if history.rounds else [])]
        parts = [*tables, *_remarks(state, job)]
    heading, loud = Text(f"\n{job.name}: {title}", style="bold"), [_loud(DEMO_NOTE)] if demo else []
    return Group(heading, *parts, *_files(history, checkpoint), *loud)


def _loud(text: str) -> Text:
    return Text(text, style="bold yellow")


def _survey(record: SurveyRecord, job: JobConfig) -> Iterator[RenderableType]:
    """Yield the training images by hospital and class, and who shares none."""
    held = record.sites | ({} if record.total is None else {"all together": record.total})
    rows = [(site, *map(str, one.train), str(sum(one.train))) for site, one in held.items()]
    columns = ("hospital", *job.task.class_names, "all")
    yield text_table("Training images; 0 is none, or too few to tell", columns, rows)
    yield from (Text(f"{site} shares no survey (policy.share_survey)") for site in record.silent)
    yield from (Text(f"the answer of {site} did not count: {why}") for site, why in record.refused.items())


def _remarks(state: GlobalState, job: JobConfig) -> Iterator[Text]:
    """Yield what else there is to say of a run, in the order of the work."""
    history, classes = state.history, job.task.class_names
    if reason := stop_reason(job.federation.stop, history):
        yield Text(f"stopped after round {state.round} of {job.federation.rounds}: {reason}")
    elif problem := why_it_cannot(job.federation.stop, history):
        yield _loud(problem)
    if not history.rounds and not history.evaluations and not history.head:
        yield Text("no site shared statistics, so there is no closed-form head and nothing to score")
    if history.head and not history.rounds and job.model.options.get("pretrained", "none") == "none":
        yield Text("no round trained the network and it has no pretrained weights: its features are random")
    known = zip(classes, state.prototypes.age.tolist(), state.prototypes.available.tolist(), strict=True)
    if old := [f"{name} {age}" for name, age, available in known if available and age]:
        yield Text(f"prototypes that nobody shared of late, with the rounds since: {', '.join(old)}")
    yield from _head_lines(history, job)
    for site, rounds in sorted(offences(history).items()):
        if rounds > 1:
            yield _loud(f"{site} was refused in its last {rounds} rounds: talk to it before you use this model")
    if history.best:
        yield Text(kept_line(history.best))
    yield from (Text(left.text) for left in history.withdrawn)
    if reason := history.why_last(classes):
        yield _loud(reason)


def _head_lines(history: History, job: JobConfig) -> Iterator[Text]:
    """Yield what came of the closed-form head."""
    head = history.head
    if head is None:
        if history.rounds and head_exchange(job) != "none":
            why = history.no_head or "the server's log says why"
            yield _loud(f"there is no closed-form head: {why}")
        return
    if head.evaluation and head.evaluation.pooled:
        made = f"with a closed-form head from {len(head.sites)} sites' statistics ({megabytes(head.bytes_up)})"
        yield Text(f"{made}: {head.evaluation.pooled.text()}")
    yield from (_loud(f"{site} is not in the closed-form head: {why}") for site, why in head.refused.items())
    if head.limited:
        usual = "held to three times the usual number of images in the closed-form head"
        yield Text(f"{usual}: {', '.join(head.limited)}")


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
    scored = [(str(evaluation.round), evaluation) for evaluation in history.evaluations]
    if history.head and history.of_head:
        scored.append((f"{history.head.round}, with head", history.of_head))
    told = {site for _, evaluation in scored for site in evaluation.sites}
    sites = sorted(told | history.sites)
    missing = ["-" if site in told else HELD_BACK for site in sites] + ["-"]
    rows = []
    for label, evaluation in scored:
        scores = [evaluation.sites.get(site) for site in sites] + [evaluation.pooled]
        rows.append((label, *(s.cell() if s else none for s, none in zip(scores, missing, strict=True))))
    pooled = scored[-1][1].pooled_sites if scored else ()
    caption = f"pooled over {', '.join(pooled) or 'no hospital: none shares per-class scores'}"
    if scored:
        last = scored[-1][1]
        caption += f" ({last.coverage})" if pooled else ""
        # A hospital that has no image of a class and one that has a few look alike here.
        withheld = [
            f"{site} {' '.join(class_names[label] for label in score.withheld)}"
            for site, score in last.sites.items()
            if score.withheld
        ]
        caption += f"; {HELD_BACK}, few or none: {', '.join(withheld)}" if withheld else ""
        caption += f". {why}" if (why := last.why_missing) else ""
    title = "Mean recall of the global model on each hospital's test images; (k/K) over k of K classes"
    return text_table(title, ("after round", *sites, "pooled"), rows, caption=caption)


def sites_table(history: History) -> Table:
    """Return which hospital shared what, over all rounds."""
    table = Table(title="What each hospital took part with", caption=UPDATE_SPEAKS)
    for column in ("hospital", "rounds", "prototypes shared", "images used", "skipped", "up", "down"):
        table.add_column(column, justify="left" if column in ("hospital", "prototypes shared") else "right")
    secure = any(record.secure for record in history.rounds)
    for site in sorted(history.sites):
        taken = history.parts_of(site)
        table.add_row(
            site,
            f"{len(taken)}/{len(history.rounds)}",
            "as a total" if secure else _shared(taken),
            *_images(taken[-1]),
            megabytes(sum(part.bytes_up for part in taken)),
            megabytes(sum(part.bytes_down for part in taken)),
        )
    for record in history.rounds:
        for site, reason in record.refused.items():
            table.add_row(site, f"refused in {record.round}", reason)
    return table


def _shared(taken: list[SiteRound]) -> str:
    """Return the classes shared in any round, in the order of the task, or that there were none."""
    classes = dict.fromkeys(name for part in taken for name in part.shared_classes)
    return " ".join(classes) or "none"


def _images(part: SiteRound) -> tuple[str, str]:
    if part.images_total is None or part.images_skipped is None:
        return str(part.samples or "-"), "-"
    return f"{part.images_total - part.images_skipped}/{part.images_total}", str(part.images_skipped)
