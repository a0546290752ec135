"""What left the hospitals, and what that can reveal."""

from fedmr_med.data.tables import spans
from fedmr_med.privacy.explain import UPDATE_SPEAKS, privacy_costs
from fedmr_med.report.elements import Section, bullets, paragraph
from fedmr_med.report.sources import ChainRun

MATRIX, ACCURACY, NO_SCORE = "Confusion matrix and score histograms of test images", "Accuracies alone", "No score"
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
        taken = [record for record in past.rounds if site in record.sites]
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
