"""The simulator's screen shows what the toolkit says and warnings; whoever chose a log mode keeps it."""

import argparse
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvflare.fuel.utils.log_utils import ConciseLogFilter

from fedmr_med.flare.quiet import LOG_CONFIG, quiet_screen, quiet_simulator
from tests.helpers.contexts import site_context


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.StreamHandler]:
    # Commands of `deploy` that ran in this process have silenced it.
    monkeypatch.setattr(logging.getLogger("nvflare"), "level", logging.NOTSET)
    logging.getLogger("nvflare").manager._clear_cache()
    handler = logging.StreamHandler(io.StringIO())
    handler.addFilter(ConciseLogFilter(logger_names=["nvflare.app_common"]))
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def test_flares_lines_are_left_out_and_its_warnings_are_not(screen: logging.StreamHandler) -> None:
    quiet_screen()
    logging.getLogger("nvflare.app_common.x").info("Finished one task run")
    logging.getLogger("nvflare.private").warning("lost a client")
    logging.getLogger("fedmr_med.flare.controller").info("round 1/7")
    shown = [line.split("  ", 1)[1] for line in screen.stream.getvalue().splitlines()]
    assert shown == ["lost a client", "round 1/7"]


def test_a_chosen_log_mode_stays(screen: logging.StreamHandler) -> None:
    screen.filters.clear()
    quiet_screen()
    logging.getLogger("nvflare.private").info("all of it")
    assert screen.stream.getvalue() == "all of it\n"


@pytest.mark.parametrize(("chosen", "then"), [("concise", str(LOG_CONFIG)), ("full", "full"), ("my.json", "my.json")])
def test_site_processes_get_the_quiet_configuration_unless_one_was_chosen(
    tmp_path: Path, chosen: str, then: str
) -> None:
    context = site_context(tmp_path, "msk", simulated=True)
    context.get_engine().args = argparse.Namespace(log_config=chosen)
    quiet_simulator(context)
    assert context.get_engine().args.log_config == then


def test_everything_goes_to_the_log_file() -> None:
    config = json.loads(LOG_CONFIG.read_text())
    assert "filters" not in config["handlers"]["file"]
    assert "file" in config["loggers"]["root"]["handlers"]
