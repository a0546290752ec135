"""The ledger of a site's privacy budget: written before anything is sent, and never rolled back.

Lines are only added, each with the hash of the one before, and synced to disk before the release they are for exists. A
process that is killed afterwards has spent for nothing, never the other way round. A *witness* outside the site's
folder holds number and hash of the last line: an old copy of the folder that somebody restores lacks that line, and the
site releases nothing more until a person has looked.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmr_med.errors import PolicyError
from fedmr_med.files import journal, own_turn, write_text
from fedmr_med.privacy.accountant import Noisy, PrivacyBudget, epsilon
from fedmr_med.privacy.policy import SitePolicy

LEDGER_FILE, TRAINING_FILE = "privacy_ledger.jsonl", "training_ledger.jsonl"


class Ledger:
    """What one site has released with noise, in all chains.

    Args:
        witness: a file outside the site's folder; None where nobody is protected, as in the simulator.
    """

    def __init__(self, path: Path, witness: Path | None = None):
        self.path = path
        self.witness = witness

    def spend(
        self,
        budget: PrivacyBudget | None,
        *,
        chain: str,
        release: str,
        noise: float,
        rate: float = 1.0,
        steps: int = 1,
        classes: Sequence[str] = (),
    ) -> bool:
        """Write down a release that is about to be made; False, and nothing written, if the budget does not allow it.

        Args:
            budget: of the site; None allows everything, and only counts.
            chain, release: what it is for; asked again, it is spent for again.
            noise, rate, steps: of the release, see :class:`fedmr_med.privacy.accountant.Noisy`.
            classes: names of those that it holds.

        Raises:
            PolicyError: the ledger was changed, or an older one was put in its place.
        """
        with own_turn(self.path.with_suffix(".lock")):
            entries = self._entries()
            if budget is not None:
                releases = [*map(_noisy, entries), Noisy(noise, rate, steps)]
                if noise < budget.min_noise or epsilon(releases, budget.delta) > budget.epsilon:
                    return False
            number = len(entries) + 1
            entry = {"number": number, "chain": chain, "release": release, "noise": noise, "classes": list(classes)}
            if (rate, steps) != (1.0, 1):
                entry |= {"rate": rate, "steps": steps}
            journal.append(self.path, entry)
            if self.witness is not None:
                write_text(self.witness, json.dumps({"number": number, "head": journal.read(self.path).head}))
        return True

    def releases(self) -> list[Noisy]:
        """Return all releases so far.

        Raises:
            PolicyError: as :meth:`spend`.
        """
        return [*map(_noisy, self._entries())]

    def total(self, delta: float) -> float:
        """Return epsilon of all releases together, whatever classes they hold: a patient can have images of several.

        Raises:
            PolicyError: as :meth:`spend`.
        """
        return epsilon(self.releases(), delta)

    def _entries(self) -> Sequence[dict[str, Any]]:
        number, head = self._witnessed()
        found = journal.read(self.path, known_head=head)
        if [entry.get("number") for entry in found.entries] != list(range(1, len(found.entries) + 1)):
            raise PolicyError(
                f"{self.path} does not count its lines one by one: it was changed.", code="record.changed"
            )
        if found.problems or len(found.entries) < number:
            reason = found.problems[0] if found.problems else "lines are missing"
            raise PolicyError(
                f"{self.path} is not the ledger that this site wrote last ({reason}; {self.witness} counts {number} "
                "releases). Nothing is released with it: put the latest copy back.",
                code="record.not-latest",
            )
        if found.entries and self.witness is not None and not self.witness.exists():
            raise PolicyError(
                f"{self.witness} is missing, so nobody can tell whether {self.path} is the latest. If it is, write "
                f'{{"number": {len(found.entries)}, "head": "{found.head}"}} to that file.',
                code="record.no-witness",
            )
        return found.entries

    def _witnessed(self) -> tuple[int, str | None]:
        if self.witness is None or not self.witness.exists():
            return 0, None
        try:
            content = json.loads(self.witness.read_text(encoding="utf-8"))
            return int(content["number"]), str(content["head"])
        except (OSError, ValueError, TypeError, KeyError) as e:
            raise PolicyError(
                f"{self.witness} cannot be read, so the privacy budget is not known.", code="file.unreadable"
            ) from e


@dataclass(frozen=True)
class Ledgers:
    """The two ledgers of a site.

    Attributes:
        sums: of class sums and statistics of heads.
        training: of model updates.
    """

    sums: Ledger
    training: Ledger

    @classmethod
    def of(cls, state_folder: Path, witness: Path | None = None) -> "Ledgers":
        """Return the ledgers in a site's folder; the witness of the second lies beside that of the first."""
        beside = None if witness is None else witness.with_name(f"{witness.stem}-training{witness.suffix}")
        return cls(Ledger(state_folder / LEDGER_FILE, witness), Ledger(state_folder / TRAINING_FILE, beside))

    def costs(self, policy: SitePolicy) -> dict[str, float]:
        """Return what releases have cost, by the key of a report, as far as the site has budgets.

        Without a budget noise is no guarantee: which classes leave depends on the images, and jobs without noise are
        answered. With both, ``total_epsilon`` is of all noisy releases together, at the smaller delta.

        Raises:
            PolicyError: as :meth:`Ledger.spend`.
        """
        budgets = {"epsilon": (policy.privacy, self.sums), "training_epsilon": (policy.training_privacy, self.training)}
        known = {name: (budget, book) for name, (budget, book) in budgets.items() if budget is not None}
        costs = {name: book.total(budget.delta) for name, (budget, book) in known.items()}
        if len(known) == len(budgets):
            everything = [*self.sums.releases(), *self.training.releases()]
            costs["total_epsilon"] = epsilon(everything, min(budget.delta for budget, _ in known.values()))
        return costs


def _noisy(entry: dict[str, Any]) -> Noisy:
    return Noisy(float(entry["noise"]), float(entry.get("rate", 1)), int(entry.get("steps", 1)))
