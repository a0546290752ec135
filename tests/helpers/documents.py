"""The commands that the documents of this repository print, as a shell takes them."""

import re
import shlex
from collections.abc import Iterator

from tests.helpers import REPOSITORY

PLACES = ("*.md", "docs/**/*.md", "*/README.md", "provisioning/*.md")
DOCUMENTS = sorted({str(path.relative_to(REPOSITORY)) for place in PLACES for path in REPOSITORY.glob(place)})
RUNBOOK, RELAYS, LEAVING = "provisioning/README.md", "docs/relays.md", "docs/leaving-and-joining.md"
SITES, OFFICER = "sites/README.md", "provisioning/DATA-PROTECTION.md"
OF_A_FEDERATION = (RUNBOOK, RELAYS, LEAVING, SITES, OFFICER)
"""Pages whose commands need a provisioned federation: tests/e2e/test_federation_runbook.py runs them."""

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def text_of(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def commands(document: str) -> list[str]:
    """Return the commands of a document's shell blocks in their order, each in one string, without comments.

    ``...`` in a command stands for the options of the last whole one before it, if there is one.
    """
    found, whole = list[str](), ""
    for language, block in FENCE.findall(text_of(document)):
        if language == "sh":
            for line in _whole(block):
                _, dots, rest = line.partition(" ... ")
                whole = whole if dots else line
                found.append(f"{whole} {rest}" if dots and whole else line)
    return found


def _whole(block: str) -> Iterator[str]:
    """Yield the commands of a block: a line that ends with a backslash, or within quotes, goes on in the next one."""
    command = ""
    for line in block.replace("\\\n", " ").splitlines():
        command += re.sub(r"(^|\s{2,})#.*", "", line).strip()
        try:
            shlex.split(command)
        except ValueError:  # within quotes
            command += "\n"
            continue
        if command:
            yield command
        command = ""
