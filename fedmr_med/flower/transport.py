"""Flower's grid as a transport: of a simulation, or of a SuperLink with its SuperNodes."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import flwr.app
from flwr.serverapp import Grid

from fedmr_med.config import FederationConfig
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.exchange.transport import Answer, Grace, seconds_for
from fedmr_med.flower.messages import META, NAME, TYPES, to_message, to_records
from fedmr_med.privacy.refusals import WORDS, in_words
from fedmr_med.schema import NAME_PATTERN
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import VALIDATE

POLL_SECONDS = 0.1
NO_LIMIT = 365 * 24 * 3600
"""Seconds in the place of no limit: Flower's messages have one."""


class FlowerTransport:
    """Sends messages to Flower's nodes and yields the answers as they come.

    A node is known by the name that it gives for its site when it is first seen. Before anybody is asked, ``nodes`` of
    them must be there; ``federation.min_sites`` if None.
    """

    in_order = False

    def __init__(self, grid: Grid, federation: FederationConfig, nodes: int | None = None):
        self._grid, self._federation = grid, federation
        self._nodes = nodes or federation.min_sites
        self._names: dict[int, str] = {}

    def sites(self, kind: str) -> list[str]:
        """Return the sites whose nodes are connected; wait for enough of them.

        Raises:
            FedMRError: too few nodes came in time, or two of them give the same name.
        """
        seconds = seconds_for(VALIDATE, self._federation, self._nodes) or NO_LIMIT
        deadline = time.monotonic() + seconds
        while len(connected := sorted(self._grid.get_node_ids())) < self._nodes:
            if time.monotonic() >= deadline:
                raise FedMRError(f"{len(connected)} of {self._nodes} nodes are connected.", code="round.no-site")
            time.sleep(POLL_SECONDS)
        unnamed = [node for node in connected if node not in self._names]
        for reply in self._replies(NAME, flwr.app.RecordDict(), unnamed, lambda: False, seconds):
            if name := _name(reply):
                self._names[reply.metadata.src_node_id] = name
        names = sorted(self._names[node] for node in connected if node in self._names)
        if doubled := [name for name, following in pairwise(names) if name == following]:
            raise FedMRError(f"Two nodes call themselves {doubled[0]!r}.", code="site.duplicate")
        return names

    def ask(
        self, kind: str, message: Message, sites: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[tuple[str, Answer]]:
        """Send a message and yield the answers: of all, or of enough and those that come in the time of grace.

        Raises:
            FedMRError: there is no site to ask.
        """
        nodes = [node for node, name in self._names.items() if name in set(sites)]
        if not nodes:
            raise FedMRError("No site is connected.", code="round.no-site")
        seconds = seconds_for(kind, self._federation, len(sites)) or NO_LIMIT
        for reply in self._replies(TYPES[kind], to_records(message), nodes, enough, seconds):
            yield self._names[reply.metadata.src_node_id], _read(reply)

    def _replies(
        self,
        message_type: str,
        content: flwr.app.RecordDict,
        nodes: Iterable[int],
        enough: Callable[[], bool],
        seconds: float,
    ) -> Iterator[flwr.app.Message]:
        messages = [flwr.app.Message(content, node, message_type, ttl=seconds) for node in nodes]
        waiting, deadline = set(self._grid.push_messages(messages)), time.monotonic() + seconds
        grace = Grace(enough, self._federation.grace_seconds)
        while waiting:
            replies = list(self._grid.pull_messages(waiting))
            for reply in replies:
                waiting.discard(reply.metadata.reply_to_message_id)
                yield reply
            if not replies:
                if grace.over() or time.monotonic() >= deadline:
                    return
                time.sleep(POLL_SECONDS)


def _name(reply: flwr.app.Message) -> str:
    """Return the name that a node gives for its site; "" if it gives none."""
    record = reply.content.config_records.get(META, {}) if reply.has_content() else {}
    name = record.get(NAME)
    return name if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) else ""


def _read(reply: flwr.app.Message) -> Answer:
    """Return what a site answered, or why it is of no use. Never raises: one site must not end the round."""
    if reply.has_error():
        word = reply.error.reason
        reason = in_words(word) if word in WORDS else f"Flower has no answer of it (code {reply.error.code})"
        return WireError(reason, code="wire.refused")
    try:
        return to_message(reply.content)
    except WireError as e:
        return e
    except Exception as e:
        return WireError(f"the reply could not be read ({type(e).__name__})", code="wire.unreadable")
