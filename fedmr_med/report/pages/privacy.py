"""What left the hospitals, and what that can reveal; of one hospital, by its own journal."""

from collections import Counter

from fedmr_med.data.tables import spans
from fedmr_med.privacy.explain import UPDATE_SPEAKS, privacy_costs
from fedmr_med.report.elements import NONE, Section, bullets, paragraph, table
from fedmr_med.report.lines import megabytes
from fedmr_med.report.sources import AuditLog, ChainRun

MATRIX, ACCURACY, NO_SCORE = "Confusion matrix and score histograms of test images", "Accuracies alone", "No score"
_LISTED = 10  # problems of a journal
_VERB = {MATRIX: "were", ACCURACY: "were", NO_SCORE: "was"}


def page(run: ChainRun) -> Section | None:
    """Return in sentences what was sent, and the sentence that no policy changes; None where one hospital scored."""
    past = run.history
    if not past.rounds and len(run.sites) == 1:
        return None
    if any(record.secure for record in past.rounds):
        lines = [
            "Class prototypes and scores were added up so that the server saw their total alone (secure sum). Which "
            "hospital shared what, nobody can tell."
        ]
    else:
        lines = [*_prototypes(run), *_scores(run)]
        if past.head:
            lines.append(f"Class statistics for the closed-form head were sent by {_names(sorted(past.head.sites))}.")
    never = paragraph("No image, no path of a file and no patient's name leaves a hospital.")
    return Section.of("privacy", "Privacy", bullets([*lines, *privacy_costs(past), UPDATE_SPEAKS]), never)


def _prototypes(run: ChainRun) -> list[str]:
    """Say whose class prototypes left, and of those who sent them in some rounds alone, in which."""
    past, shared, changed = run.history, [], []
    for site in run.sites:
        taken = past.rounds_of(site)
        sent = [record.round for record in taken if record.sites[site].shared_classes]
        none = [record.round for record in taken if not record.sites[site].shared_classes]
        shared += [site] if sent else []
        if sent and none:
            changed.append(f"{site} sent class prototypes in {_rounds(sent)}, and none in {_rounds(none)}.")
    opted = [site for site in run.sites if site not in shared]
    lines = [f"Class prototypes (sum of features and number of images of a class) were sent by {_names(shared)}."]
    return [*lines, *([f"{_names(opted)} sent no class prototypes."] if opted and past.rounds else []), *changed]


def _scores(run: ChainRun) -> list[str]:
    """Say which scores left whom; of a hospital that sent different ones, of which models it sent what."""
    sent: dict[str, dict[str, list[int]]] = {}
    for evaluation in run.scored:
        for site in {*evaluation.sites, *evaluation.held_back}:
            score = evaluation.sites.get(site)
            kind = NO_SCORE if score is None else MATRIX if score.recall else ACCURACY
            sent.setdefault(site, {}).setdefault(kind, []).append(evaluation.round)
    if not sent:
        return []
    most = {site: next(kind for kind in (MATRIX, ACCURACY, NO_SCORE) if kind in kinds) for site, kinds in sent.items()}
    lines = []
    for kind in (MATRIX, ACCURACY, NO_SCORE):
        who = sorted(site for site, what in most.items() if what == kind)
        lines += [f"{kind} {_VERB[kind]} sent by {_names(who)}."] if who or kind == MATRIX else []
    for site, kinds in sorted(sent.items()):
        if len(kinds) > 1:
            parts = [f"{kind.lower()} of the model after {_rounds(numbers)}" for kind, numbers in kinds.items()]
            why = "Its policy changed, or cells were too small to leave (min_cell_count)."
            lines.append(f"{site} changed what it shares: {'; '.join(parts)}. {why}")
    return lines


def _rounds(numbers: list[int]) -> str:
    """Return rounds in words, runs of them as a span."""
    return f"round{'s' if len(set(numbers)) > 1 else ''} {', '.join(spans(numbers, ' to '))}"


def _names(sites: list[str]) -> str:
    return ", ".join(sites) or "no hospital"


def journal(log: AuditLog) -> Section:
    """Return each reply that left, by job, and whether the journal is intact."""
    jobs = dict.fromkeys(str(entry.get("job")) for entry in log.entries)
    sums, rows = [], []
    for job in jobs:
        mine = [entry for entry in log.entries if str(entry.get("job")) == job]
        classes = Counter(name for e in mine for name in e.get("parts", {}).get("prototypes", {}).get("classes", ()))
        empty = sum(entry.get("code") != "OK" for entry in mine)
        shared = ", ".join(f"{name} ({times}x)" for name, times in classes.items()) or "no class"
        size = sum(entry.get("bytes", 0) for entry in mine)
        sums.append((job, str(len(mine)), megabytes(size), shared, str(empty)))
    for entry in log.entries:
        parts = entry.get("parts", {})
        what = ", ".join(parts) or f"nothing: {entry.get('reason') or entry.get('code')}"
        size = megabytes(entry.get("bytes", 0))
        cells = (entry.get(key, NONE) for key in ("time", "task", "round"))
        rows.append((*map(str, cells), what, size, str(entry.get("metrics", NONE))))
    intact = (
        f"Every line of the journal follows the one before it, up to the head {log.head}. Lines that were cut off "
        "at its end leave no trace: `fedmr-med site audit --head` looks for a head that was written down elsewhere."
    )
    return Section.of(
        "audit",
        "What has left this hospital",
        paragraph("The journal is NOT INTACT.", "loud") if log.problems else paragraph(intact),
        bullets(log.problems[:_LISTED]),
        paragraph(f"And {len(log.problems) - _LISTED} more.") if len(log.problems) > _LISTED else None,
        table("By job", ("job", "replies", "sent", "prototypes", "replies without content"), sums),
        table("Reply by reply", ("time", "task", "round", "content", "size", "metrics"), rows),
        paragraph(UPDATE_SPEAKS),
    )
