"""A run's figures for FLARE's own tools: analytics events for TensorBoard and the like, and its metrics files.

No site sends an event to the server, where it would pass every filter by. What its policy lets out is in its reply;
the server tells its receivers of that, in the site's name. A site's own receivers hear the same figures on site.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import EventScope, FedEventHeader, FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.analytix_utils import create_analytic_dxo

from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.score import Evaluation, Score
from fedmr_med.files import write_json, write_text
from fedmr_med.wire.messages import SiteReply

METRICS, SUMMARY, ROUNDS = "metrics", "metrics_summary.json", "round_metrics.jsonl"
_KEY_METRIC = {"name": "balanced_accuracy", "mode": "max"}
_NOTE = (
    "Scores of the global model; aggregated ones are over the pooled confusion matrices of the sites that share them."
)


def figures(reply: SiteReply) -> dict[str, float]:
    """Return the figures of a reply, which the site's policy has let out, by the names they are tracked under."""
    found: dict[str, float] = {}
    if reply.scores is not None:
        found |= _scalars(Score.of(reply.scores))
    if reply.report is not None:
        found |= {f"loss/{name}": value for name, value in reply.report.terms.items()}
        if reply.report.seconds is not None:
            found["seconds"] = reply.report.seconds
    return found


def track(component: FLComponent, values: Mapping[str, float], step: int, fl_ctx: FLContext, site: str = "") -> None:
    """Tell the receivers in this process of some figures.

    Args:
        component: in whose name.
        values: the figures by tag.
        step: rounds done before.
        fl_ctx: of the run.
        site: whose figures they are, at the server; "" are those of this process itself.
    """
    engine = fl_ctx.get_engine()
    for tag, value in values.items():
        data = create_analytic_dxo(tag, value, AnalyticsDataType.SCALAR, global_step=step).to_shareable()
        with engine.new_context() as own:
            own.set_prop(FLContextKey.EVENT_DATA, data, private=True, sticky=False)
            if not site:
                component.fire_event(ANALYTIC_EVENT_TYPE, own)
                continue
            # In the form of an event that came from the site, so that receivers file it under its name.
            data.set_peer_props({ReservedKey.IDENTITY_NAME: site})
            data.set_header(FedEventHeader.DIRECTION, "in")
            own.set_prop(FLContextKey.EVENT_SCOPE, EventScope.FEDERATION, private=True, sticky=False)
            engine.fire_event(f"fed.{ANALYTIC_EVENT_TYPE}", own)


def track_pooled(component: FLComponent, history: History, fl_ctx: FLContext) -> None:
    """Tell the receivers in this process of the latest pooled scores, if any site shares its own."""
    latest = history.evaluations[-1] if history.evaluations else None
    if latest is not None:
        track(component, _pooled(latest), latest.round, fl_ctx)


def write_metrics(folder: Path, job_name: str, history: History) -> None:
    """Write FLARE's two metrics files of a run, which ``nvflare job`` reads; nothing where no site shares scores."""
    scored = [e for e in sorted(history.evaluations, key=lambda e: e.round) if e.sites]
    if not scored:
        return
    records = [_record(evaluation) for evaluation in scored]
    summary = {
        "schema_version": "1",
        "status": "metrics_reported",
        "job_name": job_name,
        "final_round": scored[-1].round,
        "final_aggregated_metrics": _named(_pooled(scored[-1])),
        "round_metrics_file": ROUNDS,
        "key_metric": _KEY_METRIC,
        "metric_source": "fedmr_med",
        "metric_split": "test",
        "notes": [_NOTE],
    }
    if history.best is not None and history.best.balanced_accuracy is not None:
        best = [{"name": _KEY_METRIC["name"], "value": history.best.balanced_accuracy}]
        summary |= {"best_round": history.best.round, "best_aggregated_metrics": best}
    write_text(folder / METRICS / ROUNDS, "".join(json.dumps(record) + "\n" for record in records))
    write_json(folder / METRICS / SUMMARY, summary)


def _record(evaluation: Evaluation) -> dict[str, Any]:
    sites = [
        {"name": site, "metrics": _named(_scalars(score)), "weight": score.samples}
        for site, score in evaluation.sites.items()
    ]
    return {
        "round": evaluation.round,
        "aggregated_metrics": _named(_pooled(evaluation)),
        "sites": sites,
        "skipped_metrics": [],
        "key_metric": _KEY_METRIC,
    }


def _pooled(evaluation: Evaluation) -> dict[str, float]:
    """Return every metric over all sites that share their counts; the two accuracies as exact as they are."""
    return evaluation.metrics | (_scalars(evaluation.pooled) if evaluation.pooled else {})


def _scalars(score: Score) -> dict[str, float]:
    mean = "mean_recall" if score.balanced_accuracy is None else "balanced_accuracy"
    values = {name: getattr(score, name) for name in ("accuracy", mean)}
    return {name: value for name, value in values.items() if value is not None}


def _named(values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
