"""A new method in one file: FedAvg with momentum at the server (Hsu et al., 2019), registered and run.

Both halves of a method are classes with few hooks; what is not overridden is FedAvg's. Here the server half keeps a
velocity from round to round, which is part of the checkpoint, and the client half stays as it is. In a package of your
own, name the class in the entry points of the group ``fedmr_med.methods`` and every job can pick it by its name.

    python examples/new_method.py
"""

import tempfile
from pathlib import Path

import numpy as np
from pydantic import Field

from fedmr_med import Federation, SiteConfig, SitePolicy, load_job
from fedmr_med.methods.base import Arrays, Method, Options, ServerHalf, Sums, register
from fedmr_med.sites import DemoSource

JOB = Path(__file__).parents[1] / "jobs/isic_fedmr/app/config/fedmr.yaml"


class MomentumOptions(Options):
    """Options of FedAvgM.

    Attributes:
        momentum: share of the last round's step that is taken again.
    """

    momentum: float = Field(0.9, ge=0, lt=1)


class MomentumServer(ServerHalf):
    """w <- w + v with v <- momentum * v + (mean of the sites - w)."""

    options: MomentumOptions

    def initial_state(self, parameters: Arrays) -> Arrays:
        """Return a velocity of zero."""
        return {name: np.zeros_like(array) for name, array in parameters.items()}

    def client_view(self, state: Arrays) -> Arrays:
        """Send nothing of it to the sites."""
        return {}

    def finish(self, sums: Sums, parameters: Arrays, state: Arrays, num_sites: int) -> tuple[Arrays, Arrays]:
        """Return the new global parameters and velocity."""
        mean, _ = super().finish(sums, parameters, state, num_sites)
        velocity = {name: self.options.momentum * state[name] + (mean[name] - parameters[name]) for name in parameters}
        return {name: parameters[name] + velocity[name] for name in parameters}, velocity


@register
class FedAvgM(Method):
    """FedAvg with server momentum."""

    name = "fedavgm"
    options_type = MomentumOptions
    server_half = MomentumServer


def main() -> None:
    """Run it beside FedAvg on generated pictures of three hospitals."""
    small = {"task": {"image_size": 24}, "model": {"name": "small_cnn"}, "federation": {"rounds": 3, "min_sites": 3}}
    job = load_job(JOB).for_demo().override(small)
    policy = SitePolicy(share_metrics="scalar", min_cell_count=1)  # generated pictures: scores are complete
    centers = {"bcn": 0, "rosendahl": 3, "vienna-dias": 5}
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=policy)
        for name, center in centers.items()
    }
    for name, options in (("fedavg", {}), ("fedavgm", {"momentum": 0.5})):
        with tempfile.TemporaryDirectory() as folder:
            chosen = job.override({"method": {"name": name, "options": options}})
            state = Federation(chosen, sites, Path(folder)).run()
            scores = [score.mean_recall or 0.0 for score in state.history.evaluations[-1].sites.values()]
            norm = np.sqrt(sum(float((array**2).sum()) for array in state.method.values()))
            print(f"{name:8} mean recall {np.mean(scores):.3f}, norm of the server state {norm:.3f}")


if __name__ == "__main__":
    main()
