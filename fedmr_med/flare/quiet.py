"""A quiet screen for FLARE's simulator: what this toolkit says, and warnings. All the rest is in the log files."""

import logging
from pathlib import Path

from nvflare.apis.fl_context import FLContext
from nvflare.fuel.utils.log_utils import ColorFormatter, ConciseLogFilter, LoggerNameFilter, LogMode

LOG_CONFIG = Path(__file__).with_name("simulator_log.json")

_OURS = "fedmr_med"
_FORMAT = ColorFormatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S")  # it leaves out FLARE's context


def quiet_screen() -> None:
    """Leave FLARE's own lines out of this process's screen, unless whoever started it chose a log mode (``-l``)."""
    for handler in logging.getLogger().handlers:
        concise = [chosen for chosen in handler.filters if isinstance(chosen, ConciseLogFilter)]
        for chosen in concise:  # FLARE's default in the simulator
            handler.removeFilter(chosen)
            handler.addFilter(LoggerNameFilter(logger_names=[_OURS]))
            handler.setFormatter(_FORMAT)


def quiet_simulator(fl_ctx: FLContext) -> None:
    """Make this simulated server's screen quiet, and those of the site processes it starts from now on."""
    quiet_screen()
    arguments = getattr(fl_ctx.get_engine(), "args", None)
    if arguments is not None and getattr(arguments, "log_config", None) == LogMode.CONCISE:
        arguments.log_config = str(LOG_CONFIG)
