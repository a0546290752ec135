"""One readable line per hospital and round, for the server's log."""

from fedmr_med.config import JobConfig
from fedmr_med.evaluation.history import RUNAWAY_ROUNDS, History
from fedmr_med.evaluation.score import HELD_BY, Evaluation, Score
from fedmr_med.server.stopping import why_it_cannot
from fedmr_med.wire.messages import SiteReply


def site_line(reply: SiteReply, job: JobConfig) -> str:
    """Return what a hospital's reply says, in one line."""
    parts = [f"{reply.samples} images"] if reply.samples else []
    if reply.scores is not None:
        parts.append(f"received model: {Score.of(reply.scores).text()}")
    if reply.report is not None and reply.report.terms:
        parts.append("loss " + " + ".join(f"{value:.3g} {name}" for name, value in reply.report.terms.items()))
    names = job.task.class_names
    shared = [] if reply.prototypes is None else [names[i] for i in reply.prototypes.counts.nonzero().flatten()]
    if job.federation.sums_statistics:
        parts.append("statistics as a total" if not job.federation.sums_models else "model and statistics as a total")
    else:
        parts.append(f"prototypes of {' '.join(shared)}" if shared else "no prototypes")
    parts.append(f"{megabytes(reply.bytes_up)} up")
    return f"round {reply.round + 1}/{job.federation.rounds} · {reply.site:<13} · " + " · ".join(parts)


def round_line(history: History, job: JobConfig) -> str:
    """Return what a round came to, in one line: time, the score of the model it started from, time left."""
    record, rounds = history.rounds[-1], job.federation.rounds
    parts = [f"round {record.round}/{rounds} done in {duration(record.seconds)}"]
    if said := score_text(history):
        parts.append(said)
    if problem := why_it_cannot(job.federation.stop, history):
        parts.append(problem)
    left = seconds_left(history, rounds)
    if left:
        parts.append(f"about {duration(left)} left")
    return " · ".join(parts)


def score_text(history: History) -> str | None:
    """Return the last pooled score, of which model it is, and what it is over; None before any model is scored."""
    scored = [evaluation for evaluation in history.evaluations if evaluation.pooled]
    if not scored or scored[-1].pooled is None:
        return f"no score: each site holds it back by {HELD_BY}" if history.evaluations else None
    evaluation, score = scored[-1], scored[-1].pooled
    value = f"no score, held back by {HELD_BY}" if score.mean_recall is None else score.text().split(" over ")[0]
    return f"model after round {evaluation.round}: {value} ({evaluation.coverage})"


def chosen_line(evaluation: Evaluation, *, trained: bool = True) -> str:
    """Say on which images the model was chosen, in a sentence; of one that was not trained, what was fitted to them."""
    if not trained:
        return "Thresholds and the temperature were fitted to these test images; nothing else of the model was."
    what = "The round, classifier or closed-form head, thresholds and the temperature were chosen on"
    if evaluation.validation is None:
        return f"{what} these test images, so all figures are somewhat optimistic."
    score = evaluation.validation.pooled
    over = "which no site shares" if score is None else f"{score.samples} of them: {score.text()}"
    return f"{what} validation images ({over}), on which nobody trained. The test images chose nothing."


def seconds_left(history: History, rounds: int) -> float | None:
    """Return how long the remaining rounds take if they take as long as those so far; None before the first."""
    seconds = [record.seconds for record in history.rounds]
    return (rounds - len(seconds)) * sum(seconds) / len(seconds) if seconds else None


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    minutes = round(seconds / 60)
    return f"{round(seconds)} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def runaway_line(history: History) -> str | None:
    """Return a warning in the round in which features are found to run away; None in all others."""
    if not history.rounds or history.runaway_round != history.rounds[-1].round:
        return None
    return (
        f"features run away: in each of the last {RUNAWAY_ROUNDS} rounds the class means became longer, to "
        f"{history.rounds[-1].prototype_norm:.3g}; FedMR's variant: anchored holds them on a sphere"
    )


def refused_line(site: str, reason: str) -> str:
    """Return why a hospital's reply does not count, in one line."""
    return f"refused the reply of {site}: {reason}"


def megabytes(size: int) -> str:
    """Return a size in MB, 10^6 bytes."""
    return f"{size / 1e6:.1f} MB"
