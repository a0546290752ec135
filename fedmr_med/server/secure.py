"""Secure sums at the server: asks the sites step by step, whatever carries the questions, and reads the total.

Where no total can be opened, or what was opened is of no use, there are no statistics this time: the prototypes age,
the model goes unscored, and training goes on.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from fedmr_med.config import JobConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.metrics import Scores
from fedmr_med.evaluation.results import Evaluation, SecureRecord
from fedmr_med.models.job_network import build_network
from fedmr_med.models.reply_forms import sum_forms
from fedmr_med.prototypes import ClassSums
from fedmr_med.secure.messages import FEWEST, Keys, Masked, Offer, Release, Roster, Shares, threshold
from fedmr_med.secure.summing import SecureSum
from fedmr_med.server.aggregation import SecureStatistics
from fedmr_med.statistics.head import HeadStatistics
from fedmr_med.wire.codec import Message
from fedmr_med.wire.messages import TrainTask
from fedmr_med.wire.secure import (
    ASK_KEYS,
    ASK_MASKED,
    ASK_OFFER,
    ASK_SHARES,
    Question,
    decode_answer,
    encode_question,
)
from fedmr_med.wire.totals import (
    HEAD,
    TRAIN,
    VALIDATE,
    SumForms,
    Total,
    Values,
    class_sums,
    head_statistics,
    model_totals,
    noisy_class_sums,
    noisy_head_statistics,
    release_name,
    total_scores,
)

A = TypeVar("A", Keys, Offer, Masked, Shares)
T = TypeVar("T")
Ask = Callable[[Message, Sequence[str], int], Mapping[str, Message]]
"""Brings a question to sites and returns the answers by site; the number is how many are enough."""


_log = logging.getLogger(__name__)


class SecureTotals:
    """The secure sums of one run of a job.

    Args:
        job: the job's settings.
        chain: id of the chain.
        ask: brings questions to sites.
    """

    def __init__(self, job: JobConfig, chain: str, ask: Ask):
        self._job, self._chain = job, chain
        self._ask = ask
        self._session = secrets.token_hex(8)
        self._keys: dict[str, Keys] = {}
        self._bytes_up = self._bytes_down = 0

    def total(self, name: str, sites: Sequence[str]) -> Total:
        """Add up what sites hold for the release ``name``.

        Raises:
            WireError: too few of them took part to the end; nothing is opened then, and nothing can be later.
        """
        started = time.monotonic()
        self._bytes_up = self._bytes_down = 0
        layout = self._forms.layout(name)
        release = Release(self._chain, self._session, name)
        question = Question(ASK_KEYS, release, self._job.digest())
        if unknown := [site for site in sites if site not in self._keys]:
            self._take(question, unknown, FEWEST, Keys, self._note_keys)
        roster = Roster.of([self._keys[site] for site in sites if site in self._keys])
        secure = SecureSum(release, roster, layout.size)
        needed = threshold(len(roster.entries))
        question = replace(question, step=ASK_OFFER, roster=roster)
        self._take(question, roster.names, needed, Offer, secure.take_offer)
        offers = tuple(secure.offered())
        question = replace(question, step=ASK_MASKED, offers=offers)
        self._take(question, [offer.site for offer in offers], needed, Masked, secure.take_masked)
        survivors = secure.survivors()
        question = replace(question, step=ASK_SHARES, offers=(), survivors=survivors)
        self._take(question, survivors, needed, Shares, secure.take_shares)
        return Total(
            values=layout.unpack(secure.total()),
            sites=survivors,
            dropped=tuple(sorted(set(roster.names) - set(survivors))),
            bytes_up=self._bytes_up,
            bytes_down=self._bytes_down,
            seconds=time.monotonic() - started,
        )

    def statistics(self, task: TrainTask, sites: Sequence[str]) -> SecureStatistics:
        """Add up what sites hold after a training round that ``task`` began."""
        private = self._job.federation.private

        def statistics(values: Values) -> tuple[ClassSums, Scores | None, Values | None]:
            if private is None:
                sums = class_sums(values)
            else:
                sums = noisy_class_sums(values, math.ceil(self._surplus(sites) * private.gaussian.least_count))
            return sums, total_scores(values), model_totals(values) or None

        found, record = self._read(release_name(TRAIN, task), sites, statistics)
        return SecureStatistics(record, *(found or ()))

    def evaluation(self, task: TrainTask, sites: Sequence[str]) -> Evaluation:
        """Add up how the sites scored the model of ``task``."""
        scores, record = self._read(release_name(VALIDATE, task), sites, total_scores)
        return Evaluation.of_total(task.round, scores, record.sites)

    def head(
        self, task: TrainTask, sites: Sequence[str]
    ) -> tuple[tuple[HeadStatistics, HeadStatistics] | None, SecureRecord]:
        """Add up what sites hold for a closed-form head of the model of ``task``; None where nothing was opened."""
        private = self._job.federation.private
        if private is None:
            return self._read(release_name(HEAD, task), sites, head_statistics)
        gaussian, more = private.head_gaussian, self._surplus(sites)
        least, noise = math.ceil(more * gaussian.least_count), more * gaussian.moments_scale
        return self._read(release_name(HEAD, task), sites, lambda values: noisy_head_statistics(values, least, noise))

    @cached_property
    def _forms(self) -> SumForms:
        return sum_forms(self._job, build_network(self._job))

    def _surplus(self, sites: Sequence[str]) -> float:
        """Return how much more noise a total has than is needed: every site adds it as if the fewest took part."""
        return math.sqrt(len(sites) / (self._job.federation.min_sites - 1))

    def _read(self, name: str, sites: Sequence[str], read: Callable[[Values], T]) -> tuple[T | None, SecureRecord]:
        try:
            total = self.total(name, sites)
            record = SecureRecord(
                sites=total.sites,
                dropped=total.dropped,
                bytes_up=total.bytes_up,
                bytes_down=total.bytes_down,
                seconds=total.seconds,
            )
            return read(total.values), record
        except WireError as e:
            _log.warning("no secure total for %s: %s", name, e)
            return None, SecureRecord(error=str(e))

    def _note_keys(self, keys: Keys) -> None:
        self._keys[keys.site] = keys

    def _take(
        self, question: Question, sites: Sequence[str], enough: int, kind: type[A], take: Callable[[A], None]
    ) -> None:
        """Ask, and let ``take`` have the answers that can be read; a site that sends something else has dropped out."""
        message = encode_question(question)
        answers = self._ask(message, sites, enough)
        self._bytes_down += message.size * len(sites)
        for site, answer in sorted(answers.items()):
            self._bytes_up += answer.size
            try:
                read = decode_answer(answer, site)
                if not isinstance(read, kind):
                    raise WireError("the answer is to another step", code="wire.unasked", key="step")
                take(read)
            except WireError:
                continue
