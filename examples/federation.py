"""A federation in ten lines of Python: the six hospitals of Fed-ISIC2019 on generated pictures, one of them opted out.

The same site and server code as in a FLARE job, in one process. Small network and pictures, so that it takes seconds.

    python examples/federation.py [FOLDER]         # stopped and started again with the same FOLDER, it resumes
"""

import sys
import tempfile
from pathlib import Path

from fedmr_med import Federation, SiteConfig, SitePolicy, load_job
from fedmr_med.sites import DemoSource

JOB = Path(__file__).parents[1] / "jobs/isic_fedmr/app/config/fedmr.yaml"
HOSPITALS = ("bcn", "vidir-molemax", "vidir-modern", "rosendahl", "msk", "vienna-dias")
SMALL = {"task": {"image_size": 24}, "model": {"name": "small_cnn"}, "federation": {"rounds": 3}}


def main(folder: Path) -> None:
    """Run three rounds and print what came out."""
    job = load_job(JOB).for_demo().override(SMALL)
    sites = {}
    for center, name in enumerate(HOSPITALS):
        # Cells of any size may leave, as the pictures are generated: few images make no score otherwise.
        policy = SitePolicy(share_prototypes=name != "msk", share_metrics="scalar", min_cell_count=1)
        sites[name] = SiteConfig(data=DemoSource(source="demo", center=center), policy=policy)
    state = Federation(job, sites, folder).run(after_round=lambda state: print(state.round, "rounds done"))
    for name, part in state.history.rounds[-1].sites.items():
        shared = " ".join(part.shared_classes) or "no class"
        print(f"{name:14} sent {part.bytes_up / 1e6:.1f} MB, prototypes of {shared}")
    for evaluation in state.history.evaluations:
        scores = [score.mean_recall or 0.0 for score in evaluation.sites.values()]
        print(f"after {evaluation.round} rounds: {sum(scores) / len(scores):.3f} recall, mean over classes and sites")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
