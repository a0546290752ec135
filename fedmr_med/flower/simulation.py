"""A whole federation in Flower's simulation, on this machine: a node for each site, their work in Ray's processes."""

from collections.abc import Callable, Mapping
from pathlib import Path

import flwr.app
from flwr.simulation import run_simulation

from fedmr_med.config import JobConfig
from fedmr_med.data.demo import effective_job, on_demo
from fedmr_med.exchange.events import Event
from fedmr_med.flower.apps import client_app, server_app
from fedmr_med.server.chain import Chain
from fedmr_med.server.state import GlobalState
from fedmr_med.site.client_state import CLIENT_STATE
from fedmr_med.site.engine import Site
from fedmr_med.sites import SiteConfig


def simulate(
    job: JobConfig,
    sites: Mapping[str, SiteConfig],
    folder: Path,
    on_event: Callable[[Event], None] = lambda event: None,
) -> GlobalState:
    """Run a job with all its sites in Flower's simulation and return the final state.

    Args:
        job: the job's settings; on the demo it has those for the demo.
        sites: settings of each site by name.
        folder: holds the checkpoint and what the sites keep. A run that was stopped resumes from there.
        on_event: hears what happens.

    Raises:
        FedMRError: the job cannot run, or too few replies of a round were usable.
    """
    job = effective_job(job, sites)
    chain = Chain(folder, job, demo=on_demo(sites))
    run_simulation(
        server_app(chain, on_event, nodes=len(sites)),
        client_app(simulated_site(job, sites, folder)),
        num_supernodes=len(sites),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    state = chain.open()
    chain.close()
    return state


def simulated_site(
    job: JobConfig, sites: Mapping[str, SiteConfig], folder: Path
) -> Callable[[flwr.app.Context], tuple[str, Site]]:
    """Return what finds a node's site by the number that a simulation gives it; see :func:`simulate`."""
    names = sorted(sites)

    def site_of(context: flwr.app.Context) -> tuple[str, Site]:
        name = names[int(context.node_config["partition-id"])]
        return name, Site.simulated(name, job, sites[name], folder / CLIENT_STATE / name)

    return site_of
