"""What is needed to do it again: settings, seed, versions."""

import platform

from markupsafe import Markup

from fedmr_med.report.elements import NONE, Section, folded, table
from fedmr_med.report.sources import ChainRun
from fedmr_med.version import installed


def page(run: ChainRun) -> Section:
    """Return the job's settings, the seed, and the versions this report was written with."""
    result = run.result
    rows = [
        ("job", result.name or NONE),
        ("dataset", result.dataset),
        ("method", result.method),
        ("network", result.model or NONE),
        ("seed", str(result.seed)),
        *((f"version of {name}", number) for name, number in installed().items()),
        ("Python", platform.python_version()),
    ]
    job = folded("All settings of the job", Markup("<pre>{}</pre>").format(run.settings)) if run.settings else None
    caption = "Settings of the run; versions are those of the machine that wrote this report"
    return Section.of("settings", "Settings, versions, seed", table(caption, ("", ""), rows), job)
