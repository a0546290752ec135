"""The sites whose totals one site helps to open: the same ones in every release of every chain.

Two totals over different sites tell what the difference put in: x1 = (T(1,2,3) + T(1,4,5) - T(2,3,4,5)) / 2. So a site
writes down the cohort that it first masks a vector for, and masks for no other one until a person there accepts it.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from fedmr_med.errors import PolicyError
from fedmr_med.files import journal, own_turn
from fedmr_med.secure import FEWEST, RESTORE


class Cohort:
    """The cohort of one site, over all chains: the last line of a journal."""

    def __init__(self, record: Path):
        self.record = record
        self._lock = record.with_suffix(".lock")

    def pinned(self) -> frozenset[str] | None:
        """Return the sites; None before the first masked vector.

        Raises:
            PolicyError: the record was changed.
        """
        entries = journal.trusted(self.record, RESTORE)
        return frozenset(entries[-1]["sites"]) if entries else None

    def check(self, sites: Collection[str]) -> None:
        """Return if a vector may go into a total over these sites.

        Raises:
            PolicyError: the cohort is another one, or the record was changed.
        """
        pinned = self.pinned()
        if pinned is None or pinned == set(sites):
            return
        lacking, new = (", ".join(sorted(names)) or "none" for names in (pinned - set(sites), set(sites) - pinned))
        raise PolicyError(
            f"the total is over another cohort than the ones before: {lacking} missing, {new} new. A person here "
            "accepts it with `fedmr-med site cohort accept`.",
            code="secure.other-cohort",
        )

    def pin(self, sites: Collection[str], *, chain: str, release: str) -> None:
        """Make these sites the cohort, if there is none yet.

        Raises:
            PolicyError: see :meth:`check`.
        """
        with own_turn(self._lock):
            self.check(sites)
            if self.pinned() is None:
                self._write(sites, {"chain": chain, "release": release})

    def accept(self, sites: Collection[str], *, by: str) -> None:
        """Make these sites the cohort from now on, by the word of a person.

        Raises:
            PolicyError: they are too few, or the record was changed.
        """
        if len(set(sites)) < FEWEST:
            raise PolicyError(
                f"A cohort has {FEWEST} sites or more: of two, each could subtract its own part.",
                code="secure.too-few-sites",
            )
        with own_turn(self._lock):
            self.pinned()
            self._write(sites, {"by": by})

    def _write(self, sites: Collection[str], about: dict[str, str]) -> None:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        journal.append(self.record, {"time": time, "sites": sorted(set(sites)), **about})
