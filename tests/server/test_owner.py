"""A chain belongs to the person who started it, until its owner's server says otherwise."""

from pathlib import Path

import pytest

from fedmr_med.errors import CheckpointError
from fedmr_med.server.chain import Chain
from fedmr_med.server.owner import Owner, claim, share
from tests.helpers.errors import raises
from tests.helpers.small import small_job

LEAD, EVE = Owner(name="lead@coordinator.org", org="coordinator"), Owner(name="eve@other.org", org="other")


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A chain of the lead's, with a checkpoint."""
    folder = tmp_path / "chains" / "abc"
    opened = Chain(folder, small_job())
    opened.save(opened.open(owner=LEAD))
    opened.close()
    return folder


def test_its_owner_goes_on_with_it(chain: Path) -> None:
    Chain(chain, small_job()).open(owner=LEAD)


@pytest.mark.parametrize("other", [EVE, Owner(name=LEAD.name, org="other"), None])
def test_nobody_else_reads_or_writes_it_and_its_lock_is_free_at_once(chain: Path, other: Owner | None) -> None:
    before = (chain / "checkpoint.pt").read_bytes()
    with raises("chain.other-owner"):
        Chain(chain, small_job()).open(owner=other)
    assert (chain / "checkpoint.pt").read_bytes() == before
    Chain(chain, small_job()).open(patience=0, owner=LEAD)


def test_sharing_is_explicit(chain: Path) -> None:
    share(chain, EVE.name)
    Chain(chain, small_job()).open(owner=EVE)
    with raises("chain.unknown"):
        share(chain.with_name("none"), EVE.name)


def test_a_checkpoint_without_an_owner_is_given_to_nobody(chain: Path) -> None:
    (chain / "owner.json").unlink()
    with raises("chain.no-owner"):
        Chain(chain, small_job()).open(owner=EVE)


def test_a_damaged_owner_file_opens_nothing(chain: Path) -> None:
    (chain / "owner.json").write_text('{"name": "eve@other.org"')
    with raises("file.unreadable", kind=CheckpointError):
        Chain(chain, small_job()).open(owner=EVE)


def test_where_nobody_submits_there_is_no_owner(tmp_path: Path) -> None:
    claim(tmp_path / "chain", None, begun=False)
    assert not (tmp_path / "chain" / "owner.json").exists()
