"""The coordinator's acts, in a journal: who provisioned, renewed, submitted, resumed, aborted, and when."""

import time
from getpass import getuser
from pathlib import Path
from typing import Any

from fedmr_med.files import journal

ACTS_FILE = "acts.jsonl"


def record(folder: Path, act: str, **details: Any) -> None:
    """Write down an act, in a word, in the workspace that provisioning keeps or the kit of the person who acts."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    journal.append(folder / ACTS_FILE, {"time": now, "by": getuser(), "act": act, **details})


def of_chain(folder: Path, chain: str) -> list[dict[str, Any]]:
    """Return the acts about a chain that are written down there, first to last."""
    return [act for act in journal.read(folder / ACTS_FILE).entries if act.get("chain") == chain]
