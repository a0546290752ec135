"""FLARE's own aggregator, to compare with."""

from collections.abc import Sequence

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import InTimeAccumulateWeightedAggregator
from nvflare.app_common.app_constant import AppConstants

from fedmr_med.arrays import Arrays
from fedmr_med.errors import FedMRError


def stock_mean(contributions: Sequence[tuple[str, Arrays, float]]) -> Arrays:
    """Return the weighted mean of (site, model, weight) by one round of ``InTimeAccumulateWeightedAggregator``."""
    context = FLContext()
    context.set_prop(AppConstants.CURRENT_ROUND, 0)
    aggregator = InTimeAccumulateWeightedAggregator(
        aggregation_weights={site: 1.0 for site, _, _ in contributions}, expected_data_kind=DataKind.WEIGHTS
    )
    aggregator.handle_event(EventType.START_RUN, context)
    for site, model, weight in contributions:
        shareable = DXO(DataKind.WEIGHTS, data=model, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: weight}).to_shareable()
        shareable.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        shareable.add_cookie(AppConstants.CONTRIBUTION_ROUND, 0)
        if not aggregator.accept(shareable, context):
            raise FedMRError(f"FLARE's aggregator refuses the model of {site}.", code="run.failed")
    result: Arrays = aggregator.aggregate(context)["DXO"]["data"]
    return result
