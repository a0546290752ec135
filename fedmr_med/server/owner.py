"""Whose chain it is: kept in its folder, checked before anything of it is read or written."""

import json
from pathlib import Path

from fedmr_med.errors import CheckpointError, ConfigError
from fedmr_med.files import write_text
from fedmr_med.schema import Strict, validated

OWNER = "owner.json"


class Owner(Strict):
    """The person who submits a job, as the server has authenticated them."""

    name: str
    org: str


class Ownership(Strict):
    """Who may go on with a chain: its owner, and people it was shared with, by name."""

    owner: Owner
    shared_with: tuple[str, ...] = ()


def claim(folder: Path, person: Owner | None, *, begun: bool) -> None:
    """Let a person go on with a chain if it is theirs or shared with them; a new chain becomes theirs.

    Args:
        person: who submitted the job; None where nobody does, as in the simulator.
        begun: whether the chain has a checkpoint.

    Raises:
        CheckpointError: the chain is somebody else's, or nobody knows whose.
    """
    path = folder / OWNER
    if path.exists():
        known = _read(path)
        if person is None or (person != known.owner and person.name not in known.shared_with):
            raise CheckpointError(
                f"The chain {folder.name} belongs to {known.owner.name} of {known.owner.org}.", code="chain.other-owner"
            )
    elif person is not None:
        if begun:
            raise CheckpointError(
                f"The chain {folder.name} has a checkpoint and no owner; write {path} at the server.",
                code="chain.no-owner",
            )
        _write(path, Ownership(owner=person))


def share(folder: Path, name: str) -> None:
    """Let another person go on with a chain.

    Raises:
        ConfigError: there is no such chain.
    """
    path = folder / OWNER
    if not path.exists():
        raise ConfigError(f"{folder} is not a chain of this server.", code="chain.unknown")
    known = _read(path)
    _write(path, known.model_copy(update={"shared_with": tuple(sorted({*known.shared_with, name}))}))


def _read(path: Path) -> Ownership:
    try:
        return validated(Ownership, json.loads(path.read_text(encoding="utf-8")), str(path), CheckpointError)
    except (OSError, ValueError) as e:
        raise CheckpointError(
            f"{path} cannot be read ({e}), so the chain is given to nobody.", code="file.unreadable"
        ) from e


def _write(path: Path, content: Ownership) -> None:
    write_text(path, json.dumps(content.model_dump(mode="json"), indent=1) + "\n")
