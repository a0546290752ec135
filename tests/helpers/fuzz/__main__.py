"""``python -m tests.helpers.fuzz``: fuzz replies and files at length."""

import argparse
import tempfile
import time
from pathlib import Path

from tests.helpers.fuzz import exchanges, files, replies


def main() -> None:
    """Run both, and print what became of the mutants.

    The first one that raises what no rule names, leaves a checkpoint that cannot be read or is taken against a rule
    ends the run with its traceback, so the last line is printed only if there was none.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.fuzz")
    parser.add_argument("--replies", type=int, default=20_000)
    parser.add_argument("--exchanges", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    kinds = (
        ("replies", replies.fuzz, asked.replies),
        ("exchanges", exchanges.fuzz, asked.exchanges),
        ("files", files.fuzz, asked.files),
    )
    for name, fuzz, count in kinds:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = fuzz(count, Path(folder), asked.seed)
        print(f"{name}: {dict(sorted(outcome.items()))} in {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    print("uncaught exceptions 0, unreadable checkpoints 0, accepted against the rules 0")  # noqa: T201


if __name__ == "__main__":
    main()
