"""What several sections ask of a run."""

from fedmr_med.evaluation.figures import Figures
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.score import Evaluation, Score
from fedmr_med.report.sources import ChainRun


def history(run: ChainRun) -> History:
    """Return the rounds and evaluations of a run."""
    return run.result.history or History()


def names(run: ChainRun) -> tuple[str, ...]:
    """Return the classes; their numbers where the results do not name them."""
    if run.result.class_names:
        return run.result.class_names
    chosen = final(run)
    count = len(chosen.pooled_figures.classes) if chosen and chosen.pooled_figures else 0
    return tuple(f"class {label}" for label in range(count))


def sites(run: ChainRun) -> tuple[str, ...]:
    """Return everybody who took part, was refused, or scored a model."""
    past = history(run)
    found = past.sites | {site for record in past.rounds for site in record.refused}
    found |= {site for e in past.evaluations for site in (*e.sites, *e.held_back)}
    return tuple(sorted(found))


def final(run: ChainRun) -> Evaluation | None:
    """Return the scores of the model that is kept as the best; of the last one, if none is."""
    past = history(run)
    best = past.best
    if best and best.head and past.head and past.head.evaluation:
        return past.head.evaluation
    chosen = [e for e in past.evaluations if best and e.round == best.round]
    return chosen[-1] if chosen else past.evaluations[-1] if past.evaluations else None


def scored(run: ChainRun) -> list[Evaluation]:
    """Return the scores of every model of a run, that with the closed-form head last."""
    past = history(run)
    of_head = past.head.evaluation if past.head else None
    return [*sorted(past.evaluations, key=lambda e: e.round), *([of_head] if of_head else [])]


def scores_of(evaluation: Evaluation, site: str | None) -> tuple[Figures | None, Score | None]:
    """Return the figures and the scalars of a site; of all sites together where ``site`` is None."""
    if site is None:
        return evaluation.pooled_figures, evaluation.pooled
    return evaluation.figures.get(site), evaluation.sites.get(site)
