"""Every command that a document names exists, with the options it names: runbooks are typed as they stand."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fedmr_med.cli import app
from tests.helpers import REPOSITORY

PLACES = ("*.md", "docs/**/*.md", "*/README.md", "provisioning/*.md", "provisioning/*/*", "Makefile")
DOCUMENTS = sorted({path for place in PLACES for path in REPOSITORY.glob(place) if path.is_file()})


def commands(document: Path) -> Iterator[list[str]]:
    """Yield the words after ``fedmr-med`` of each command, up to a comment or the next command."""
    for line in document.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        for text in re.findall(r"(?:`|^\s*|^ExecStart\w*=\S*|&& |/)fedmr-med ([a-z][^`#\n]*)", line):
            words = shlex.split(re.split(r"\s(?:&&|;|\|\|?)\s|\s{3,}", text)[0])
            if not any("|" in word or "..." in word for word in words):
                yield words


def problem(words: list[str]) -> str | None:
    """Say what of a command does not exist."""
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands"):  # a group
        if command.invoke_without_command and (not words or words[0].startswith("-")):
            break
        if not words or words[0] not in command.list_commands(None):
            return None if words == ["--help"] or not words else f"no command {words[0]!r}"
        command = command.get_command(None, words.pop(0))
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    options = [word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)]
    unknown = [option for option in options if option not in known]
    return f"no option {unknown[0]!r}" if unknown else None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_commands_of_a_document_exist(document: Path) -> None:
    wrong = [f"fedmr-med {' '.join(words)}: {found}" for words in commands(document) if (found := problem(words))]
    assert not wrong


def test_the_runbooks_commands_are_seen() -> None:
    found = [" ".join(words[:2]) for words in commands(REPOSITORY / "provisioning" / "README.md")]
    assert {"deploy provision", "site seal", "site adopt", "deploy renew", "deploy watch", "site jobs"} <= set(found)
    assert problem(["site", "adopt", "OLD", "--from", "x"]) == "no option '--from'"
    assert problem(["site", "adpot"]) == "no command 'adpot'"
