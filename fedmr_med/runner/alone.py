"""One hospital trains by itself: what a federation's model is set against."""

from pathlib import Path

from fedmr_med.evaluation.results import RunResult
from fedmr_med.inference.evaluate import OwnTable, site_of
from fedmr_med.models.model_file import SavedModel
from fedmr_med.runner.federation import Federation
from fedmr_med.server.chain import setup_of


def local_baseline(saved: SavedModel, table: OwnTable, name: str, folder: Path) -> RunResult:
    """Train on this hospital's train fold alone, with the budget of the given model, and score on its test fold.

    A federation of one site: as many rounds, and in each the same number of steps, from a fresh network.

    Raises:
        DataError: the table has no train fold.
    """
    alone = {
        "method": {"name": "fedavg", "options": {}},
        "federation": {"min_sites": 1, "sites_per_round": None, "rounds": max(1, saved.job.federation.rounds)},
        "head": {"exchange": "none"},
    }
    job = saved.job.override(alone)
    state = Federation(job, {name: site_of(table.manifest, prepared=table.prepared)}, folder).run()
    return RunResult.of(setup_of(job, "this hospital alone"), state.history, whole=True)
