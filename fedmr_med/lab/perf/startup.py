"""What it costs to start a client process."""

import subprocess
import sys
from functools import partial

from fedmr_med.lab.perf.measure import CHILDREN, CPU, Figure, interleaved, ratios

CLIENT = "import fedmr_med.flare.executor"
BASE = "import torch, nvflare.apis.executor"


def import_figures(repetitions: int) -> list[Figure]:
    """Measure the imports of a client process, in seconds and against those it cannot do without."""
    candidates = {code: partial(_run, code) for code in (CLIENT, BASE)}
    seconds = interleaved(candidates, repetitions, clock=CHILDREN)
    return [
        Figure.of("import_seconds", "client", CLIENT, f"seconds of {CPU}, interpreter included", seconds[CLIENT]),
        Figure.of("import_ratio", "client", CLIENT, f"{CPU} / of `{BASE}`", ratios(seconds, CLIENT, BASE)),
    ]


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
