"""Closing an exchange with a secure sum: asks the sites step by step and opens the total of what they hold.

Where no total of a round can be opened the prototypes age, and training goes on. A head or scores that cannot be
opened end the job, see :meth:`Total.check`.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fedmr_med.arrays import Vector
from fedmr_med.config import JobConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.evaluation.records import SecureRecord
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.schema import brief
from fedmr_med.secure import FEWEST
from fedmr_med.secure.messages import Confirmation, Keys, Masked, Offer, Release, Roster, Shares, threshold
from fedmr_med.secure.summing import SecureSum
from fedmr_med.statistics.base import Origin, Statistic
from fedmr_med.statistics.fields import Values
from fedmr_med.wire.codec import Message
from fedmr_med.wire.secure import (
    ASK_CONFIRMED,
    ASK_KEYS,
    ASK_MASKED,
    ASK_OFFER,
    ASK_SHARES,
    Question,
    decode_answer,
    encode_question,
    session_of,
)

A = TypeVar("A", Keys, Offer, Masked, Confirmation, Shares)
T = TypeVar("T")
Ask = Callable[[Message, Sequence[str], int], Mapping[str, Message | WireError]]
"""Brings a question to sites and returns answers and refusals by site; the number is how many answers are enough."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Total:
    """What a secure sum gave.

    Attributes:
        name: of the release.
        record: who took part, and what it cost; or why nothing was opened.
        values: the totals by statistic; None where nothing was opened.
        vector: all of them as they were summed; None likewise.
    """

    name: str
    record: SecureRecord
    values: Mapping[str, Values] | None = None
    vector: Vector | None = None

    def check(self) -> None:
        """Return if the total is open.

        Raises:
            FedMRError: it is not; the message names who is missing.
        """
        if self.values is None:
            missing = ", ".join(self.record.dropped) or "nobody"
            raise FedMRError(
                f"There is no secure total for {self.name}: {self.record.error}. Missing: {missing}. Resume the job "
                "when all are back; a cohort without them needs `fedmr-med site cohort accept` at every site.",
                code="round.no-secure-total",
                key="federation.secure",
            )

    def read(self, reader: Callable[[Mapping[str, Values]], T]) -> tuple[T | None, SecureRecord]:
        """Return what ``reader`` makes of the values, and the record; None where there is nothing that it can read."""
        if self.values is None:
            return None, self.record
        try:
            return reader(self.values), self.record
        except WireError as e:
            _log.warning("no secure total for %s: %s", self.name, e)
            return None, SecureRecord(error=str(e))

    def of(self, statistic: Statistic[T]) -> tuple[T, SecureRecord] | tuple[None, SecureRecord]:
        """Return what one statistic without noise means, and the record; see :meth:`read`."""
        known = Origin(len(self.record.sites))
        content, record = self.read(lambda values: statistic.read(values[statistic.part], known))
        return (None, record) if content is None else (content, record)


class SecureTotals:
    """The secure sums of one run of a job in a chain, of which the id is given."""

    def __init__(self, job: JobConfig, chain: str, ask: Ask):
        self._job, self._chain, self._ask = job, chain, ask
        self._session = session_of(job.whole_digest(), secrets.token_hex(8))
        self._keys: dict[str, Keys] = {}
        self._missing: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._bytes_up = self._bytes_down = 0

    def total(self, name: str, sites: Sequence[str], known: Collection[str] = ()) -> Total:
        """Add up what sites hold for the release ``name``.

        If too few of them take part to the end, nothing is opened.

        Args:
            sites: who holds a vector.
            known: all sites of the federation, as far as the server knows; who has none is named as missing.
        """
        started = time.monotonic()
        self._bytes_up = self._bytes_down = 0
        self._missing, self._reasons = set(known) - set(sites), {}
        try:
            vector, survivors, dropped = self._opened(name, sites)
        except WireError as e:
            missing, error = tuple(sorted(self._missing)), "; ".join([str(e), *self._said()])
            _log.warning("no secure total for %s: %s; missing: %s", name, error, ", ".join(missing))
            return Total(name, SecureRecord(dropped=missing, error=error))
        record = SecureRecord(
            sites=survivors,
            dropped=dropped,
            bytes_up=self._bytes_up,
            bytes_down=self._bytes_down,
            seconds=time.monotonic() - started,
        )
        return Total(name, record, reply_form(self._job).unpack(name, vector), vector)

    def _opened(self, name: str, sites: Sequence[str]) -> tuple[Vector, tuple[str, ...], tuple[str, ...]]:
        """Return the total, the sites that are in it, and those that had keys and are not.

        Raises:
            WireError: too few sites took part to the end.
        """
        release = Release(self._chain, self._session, name)
        question = Question(ASK_KEYS, release, self._job.digest())
        if unknown := [site for site in sites if site not in self._keys]:
            self._take(question, unknown, FEWEST, Keys, self._note_keys)
        roster = Roster.of([self._keys[site] for site in sites if site in self._keys])
        secure = SecureSum(release, roster, reply_form(self._job).layout(name).size)
        needed = threshold(len(roster.entries))
        question = replace(question, step=ASK_OFFER, roster=roster)
        self._take(question, roster.names, needed, Offer, secure.take_offer)
        offers = tuple(secure.offered())
        question = replace(question, step=ASK_MASKED, offers=offers)
        self._take(question, [offer.site for offer in offers], needed, Masked, secure.take_masked)
        survivors = secure.survivors()
        question = replace(question, step=ASK_CONFIRMED, offers=(), survivors=survivors)
        self._take(question, survivors, needed, Confirmation, secure.take_confirmation)
        confirmations = tuple(secure.confirmations())
        question = replace(question, step=ASK_SHARES, confirmations=confirmations)
        self._take(question, [confirmation.site for confirmation in confirmations], needed, Shares, secure.take_shares)
        return secure.total(), survivors, tuple(sorted(set(roster.names) - set(survivors)))

    def _note_keys(self, keys: Keys) -> None:
        self._keys[keys.site] = keys

    def _take(
        self, question: Question, sites: Sequence[str], enough: int, kind: type[A], take: Callable[[A], None]
    ) -> None:
        """Ask, and let ``take`` have the answers that can be read; a site that sends something else has dropped out."""
        message = encode_question(question)
        answers = self._ask(message, sites, enough)
        lost, reasons = set(sites) - answers.keys(), dict[str, str]()
        self._bytes_down += message.size * len(sites)
        for site, answer in sorted(answers.items()):
            try:
                if isinstance(answer, WireError):
                    raise answer
                self._bytes_up += answer.size
                read = decode_answer(answer, site)
                if not isinstance(read, kind):
                    raise WireError("the answer is to another step", code="wire.unasked", key="step")
                take(read)
            except WireError as e:
                lost.add(site)
                reasons[site] = brief(e, 200)
        # Who is lost first is why the others refuse what comes next.
        self._missing, self._reasons = self._missing or lost, self._reasons or reasons

    def _said(self) -> list[str]:
        """Return why sites refused what was asked first."""
        return [
            f"{', '.join(site for site, why in self._reasons.items() if why == reason)}: {reason}"
            for reason in sorted(set(self._reasons.values()))
        ]


def origin(job: JobConfig, sites: int, *, of_head: bool = False) -> Origin:
    """Return what is known of a total over some sites of class sums, or of the statistics of a head."""
    private = job.federation.private
    if private is None:
        return Origin(sites)
    gaussian = private.head_gaussian if of_head else private.gaussian
    if not job.federation.sums_statistics:
        # Each site has added all of the noise, and left out the classes that are too small for it.
        return Origin(sites, 1, math.sqrt(sites) * gaussian.moments_scale)
    # Every site adds noise as if the fewest took part, so a total of more of them has more than is needed.
    surplus = math.sqrt(sites / (job.federation.min_sites - 1))
    return Origin(sites, math.ceil(surplus * gaussian.least_count), surplus * gaussian.moments_scale)
