"""Three hospitals on generated pictures: the same job carried by Flower's simulation and by the in-process runner.

Needs the extra ``flower``, in an environment of its own (docs/flower.md). Ray, which does the work in Flower's
simulation, takes some seconds to start.

    python examples/flower_simulation.py
"""

import tempfile
from pathlib import Path

from fedmr_med import Federation, SiteConfig, SitePolicy, load_job
from fedmr_med.exchange.events import Event, Kept
from fedmr_med.flower import simulate
from fedmr_med.process import set_threads
from fedmr_med.sites import DemoSource

JOB = Path(__file__).parents[1] / "jobs/isic_fedmr/app/config/fedmr.yaml"
SMALL = {"task": {"image_size": 24}, "model": {"name": "small_cnn"}, "federation": {"rounds": 2, "min_sites": 3}}


def hear(event: Event) -> None:
    """Say what was carried."""
    if isinstance(event, Kept):
        print(f"carried by Flower: {event.step.kind}, {event.state.round} rounds done")


def main(folder: Path) -> None:
    """Run the job twice and compare the models."""
    set_threads(1)  # as Ray's processes have: equal to the bit only at an equal number
    job = load_job(JOB).for_demo().override(SMALL)
    # Cells of any size may leave, as the pictures are generated: few images make no score otherwise.
    policy = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1)
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=center), policy=policy)
        for name, center in {"bcn": 0, "rosendahl": 3, "msk": 4}.items()
    }
    flower = simulate(job, sites, folder / "flower", hear)
    runner = Federation(job, sites, folder / "runner").run()
    same = all((flower.model[name] == runner.model[name]).all() for name in runner.model)
    print("the same model to the bit:", same)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
