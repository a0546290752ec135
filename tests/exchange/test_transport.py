"""A transport from outside: the post. Nothing of the package knows it, and a job by post is the runner's to the bit."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedmr_med.errors import FedMRError, WireError
from fedmr_med.exchange import Answer, Grace, Server, Transport, run
from fedmr_med.exchange.plan import plan
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import code_of, in_words
from fedmr_med.runner import Federation
from fedmr_med.server.chain import Chain
from fedmr_med.site.engine import Site
from fedmr_med.wire.codec import Message
from tests.helpers.small import small_job
from tests.helpers.transports import demo_sites, outcome


class ByPost:
    """Writes questions and answers to files; the last site answers first."""

    in_order = False

    def __init__(self, folder: Path, sites: Mapping[str, Site]):
        self._folder, self._sites, self._sent = folder, sites, 0

    def sites(self, kind: str) -> list[str]:
        return sorted(self._sites)

    def ask(
        self, kind: str, message: Message, sites: Sequence[str], enough: Callable[[], bool]
    ) -> Iterator[tuple[str, Answer]]:
        question = self._post(message)
        for site in sorted(sites, reverse=True):
            try:
                yield site, self._read(self._post(self._sites[site].answer(kind, self._read(question))))
            except FedMRError as e:
                yield site, WireError(in_words(code_of(e)), code="wire.refused")

    def _post(self, message: Message) -> Path:
        self._sent += 1
        letter = self._folder / f"{self._sent}.npz"
        named = {f"{part}:{name}": array for part, arrays in message.parts.items() for name, array in arrays.items()}
        np.savez(letter, plain=json.dumps([list(message.parts), message.meta]), **named)
        return letter

    def _read(self, letter: Path) -> Message:
        with np.load(letter, allow_pickle=False) as arrays:
            parts, meta = json.loads(str(arrays["plain"]))
            named: dict[str, dict[str, np.ndarray]] = {part: {} for part in parts}
            for key in set(arrays) - {"plain"}:
                part, name = key.split(":", 1)
                named[part][name] = arrays[key]
        return Message(named, meta)


# Its training floors refuse three steps a round.
SHARING = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "policies"),
    [
        ({}, {}),
        ({"federation": {"wire": "float16"}}, {"vienna_dias": SHARING}),
        ({"federation": {"secure": "all", "min_sites": 3}}, {}),
    ],
    ids=["plain", "half precision and a site that refuses", "secure sums"],
)
def test_a_job_by_post_is_the_runners_to_the_bit(
    changes: dict[str, dict[str, object]], policies: dict[str, SitePolicy], tmp_path: Path
) -> None:
    job, sites = small_job(**changes), demo_sites("bcn", "msk", "rosendahl", "vienna-dias", **policies)
    (tmp_path / "letters").mkdir()
    at_work = {name: Site.simulated(name, job, site, tmp_path / name) for name, site in sites.items()}
    transport: Transport = ByPost(tmp_path / "letters", at_work)
    chain = Chain(tmp_path / "chain", job)
    state = run(plan(job), chain.open(), transport, chain)
    chain.close()
    assert state.round == 2
    assert state.head
    assert [set(record.refused) for record in state.history.rounds] == [{"vienna-dias"} if policies else set()] * 2
    assert outcome(state) == outcome(Federation(job, sites, tmp_path / "runner").run())


def test_the_server_can_be_driven_by_hand(tmp_path: Path) -> None:
    job, sites = small_job("fedavg", federation={"rounds": 1}), demo_sites("bcn", "msk")
    at_work = {name: Site.simulated(name, job, site, tmp_path / name) for name, site in sites.items()}
    chain, kinds = Chain(tmp_path / "chain", job), []
    server = Server(plan(job), chain.open(), ByPost(tmp_path, at_work), chain)
    with pytest.raises(RuntimeError, match="no step is open"):
        server.close()
    while (task := server.next_task()) is not None:
        kinds.append(task.kind)
        assert not server.has_quorum()
        for site in task.sites:
            server.offer(site, at_work[site].answer(task.kind, task.message))
        assert server.has_quorum()
        assert server.close() is server.state
    chain.close()
    assert kinds == ["train", "validate"]
    assert outcome(server.state) == outcome(Federation(job, sites, tmp_path / "runner").run())


def test_late_sites_have_the_time_of_grace_once_there_are_enough_answers() -> None:
    answers: list[int] = []
    grace = Grace(lambda: len(answers) >= 2, seconds=0.05)
    assert not grace.over()
    time.sleep(0.06)
    assert not grace.over(), "it has not begun"
    answers += [1, 2]
    assert not grace.over()
    time.sleep(0.06)
    assert grace.over()
    assert Grace(lambda: True, seconds=0).over()
