"""First of all: how good the model is, who made it, and who is missing."""

from markupsafe import Markup

from fedmr_med.evaluation.catalog import described
from fedmr_med.report.elements import NONE, Section, bullets, cards, join, note, paragraph, table
from fedmr_med.report.lines import chosen_line
from fedmr_med.report.sources import ChainRun

_METRICS, _SENSITIVITY = ("balanced_accuracy", "auroc", "calibration_error"), "sensitivity"


def page(run: ChainRun) -> Section:
    """Return the score with its interval, the hospitals with their share, and a loud line for those who dropped out."""
    result = run.result
    rounds = len(run.history.rounds)
    done = f"{rounds} rounds" if rounds else "scored without training"
    said = f"{result.label or result.method}, {result.model or result.dataset}: {done}."
    loud = Markup('<div class="loud" role="alert"><strong>Not everybody took part.</strong>{}</div>')
    return Section.of(
        "headline",
        result.name or result.dataset,
        paragraph(said),
        _score(run),
        loud.format(problems) if (problems := bullets(missing(run))) else None,
        _who(run),
        bullets(left.text for left in run.history.withdrawn),
    )


def missing(run: ChainRun) -> list[str]:
    """Return who was absent or refused, in sentences."""
    past, lines = run.history, []
    total = len(past.rounds)
    for site in run.sites:
        refused = [(record.round, record.refused[site]) for record in past.rounds if site in record.refused]
        taken = past.rounds_of(site)
        if len(taken) == total:
            continue
        gone = f", last in round {taken[-1].round}" if taken and taken[-1].round < total else ""
        why = f" In round {refused[-1][0]} it was refused: {refused[-1][1]}." if refused else ""
        lines.append(f"{site} took part in {len(taken)} of {total} rounds{gone}.{why}")
    head = past.head
    lines += [
        f"{site} is not in the closed-form head: {reason}." for site, reason in (head.refused if head else {}).items()
    ]
    return lines


def _score(run: ChainRun) -> Markup:
    chosen, best = run.final, run.history.best
    why = run.history.why_last(run.classes)
    if chosen is None or chosen.pooled is None:
        return paragraph(why or "No hospital shares its scores, so there is no score of the model.", "note")
    figures, score = chosen.pooled_figures, chosen.pooled
    if score.balanced_accuracy is None:
        return join([
            paragraph(why or f"{score.coverage} count, so there is no balanced accuracy.", "loud"),
            paragraph(f"After round {chosen.round}: {score.text()}, {chosen.coverage}, {score.samples} test images."),
        ])  # fmt: skip
    shown = [("balanced accuracy", f"{score.balanced_accuracy:.3f}")]
    if figures:
        shown = [(described(name).heading, figures.text(name)) for name in _METRICS if name in figures.metrics]
        worst = min(
            ((found.metrics[_SENSITIVITY].value, name, found.text(_SENSITIVITY))
             for name, found in zip(run.classes, figures.classes, strict=False) if _SENSITIVITY in found.metrics),
            default=None,
        )  # fmt: skip
        shown += [(f"lowest sensitivity: {run.spelled(worst[1])}", worst[2])] if worst else []
    head, which, lost = ", with its closed-form head" if best and best.head else "", "last", ""
    if best is not None and best.balanced_accuracy is not None:
        which = "best" if run.history.rounds else "saved"
        if chosen is not run.history.best_evaluation:  # figures are kept of one head alone, the last
            lost = f"The best model, after round {best.round}{head}, has a balanced accuracy of "
            lost += f"{best.balanced_accuracy:.3f}."
            which, head = "last", ""
    where, count = ", ".join(chosen.pooled_sites) or "no hospital", len(run.classes)
    chance = f" A guess among {count} classes has a balanced accuracy of {1 / count:.3f}." if count else ""
    return join([
        cards(shown),
        paragraph(
            f"Of the {which} model, after round {chosen.round}{head}, on {score.samples} test images of {where} "
            f"({chosen.coverage}). Intervals are of 95 %{f' and {figures.unit}' if figures else ''}.{chance}"
        ),
        paragraph(chosen_line(chosen, trained=bool(run.history.rounds))),
        note(lost),
        note(why),
    ])  # fmt: skip


def _who(run: ChainRun) -> Markup | None:
    past = run.history
    if not past.rounds:
        return None
    samples = {site: max((part.samples for part in past.parts_of(site)), default=0) for site in run.sites}
    total = sum(samples.values())
    rows = []
    for site, count in samples.items():
        taken = len(past.parts_of(site))
        share = f"{100 * count / total:.0f} %" if total and count else NONE
        rows.append((site, f"{taken} of {len(past.rounds)}", str(count) if count else NONE, share))
    return table("Who took part", ("hospital", "rounds", "training images, as reported", "share"), rows)
