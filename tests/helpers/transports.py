"""What the tests of every transport have in common: a few sites, and what a run comes to."""

from typing import Any

from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.server.state import GlobalState
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.small import OPEN


def demo_sites(*names: str, policy: SitePolicy = OPEN, **policies: SitePolicy) -> dict[str, SiteConfig]:
    """Return the settings of hospitals on generated pictures; a policy of its own by a name with underscores."""
    return {
        name: SiteConfig(
            data=DemoSource(source="demo", center=HOSPITALS.index(name)),
            policy=policies.get(name.replace("-", "_"), policy),
        )
        for name in names
    }


def outcome(state: GlobalState) -> dict[str, Any]:
    """Return all that a run made, arrays to the bit; times are none of it."""
    prototypes, head = state.prototypes, state.history.head
    arrays = {
        **{f"model/{name}": array for name, array in state.model.items()},
        **{f"averaged/{name}": array for name, array in state.averaged.items()},
        **{f"method/{name}": array for name, array in state.method.items()},
        **{f"head/{name}": array for name, array in (state.head or {}).items()},
        **{f"prototypes/{name}": getattr(prototypes, name).numpy() for name in ("means", "available", "age")},
    }
    return {
        "arrays": {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()},
        "accepted": dict(state.accepted),
        "refused": [record.refused for record in state.history.rounds],
        "scores": state.history.evaluations,
        "head": None if head is None else (head.shrinkage, head.sites, head.classes, head.evaluation),
    }
