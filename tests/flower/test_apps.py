"""Flower's two apps with real sites, their messages handed over in this process."""

import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

import flwr.app

from fedmr_med.config import JobConfig
from fedmr_med.flower import FlowerTransport, client_app, server_app
from fedmr_med.flower.messages import NAME, TYPES, to_records
from fedmr_med.flower.simulation import simulated_site
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import DATA, FAILED
from fedmr_med.runner import Federation
from fedmr_med.server.chain import Chain
from fedmr_med.server.state import GlobalState, initial_state
from fedmr_med.site.engine import Site
from fedmr_med.sites import FlambyIsicSource, SiteConfig
from fedmr_med.wire.codec import Message, encode_task
from fedmr_med.wire.kinds import TRAIN, VALIDATE
from tests.helpers.errors import raises
from tests.helpers.flower import DirectGrid, run_apps
from tests.helpers.small import OPEN, small_job, task_for
from tests.helpers.transports import demo_sites, outcome

# Its training floors refuse three steps a round.
SHARING = SitePolicy(share_prototypes=True, share_metrics="per_class", min_cell_count=1)


def run_job(job: JobConfig, sites: dict[str, SiteConfig], folder: Path) -> GlobalState:
    chain = Chain(folder, job)
    run_apps(server_app(chain, nodes=len(sites)), client_app(simulated_site(job, sites, folder)), len(sites))
    state = chain.open()
    chain.close()
    return state


@pytest.mark.parametrize(
    ("changes", "policies"),
    [
        ({}, {"vienna_dias": SHARING}),
        ({"federation": {"wire": "float16"}}, {}),
        ({"federation": {"secure": "statistics", "min_sites": 3}}, {}),
    ],
    ids=["a site that refuses", "half precision", "secure sums"],
)
def test_a_job_on_flower_is_the_runners_to_the_bit(
    changes: dict[str, dict[str, object]], policies: dict[str, SitePolicy], tmp_path: Path
) -> None:
    job, sites = small_job(**changes), demo_sites("bcn", "msk", "vienna-dias", **policies)
    state = run_job(job, sites, tmp_path / "flower")
    assert [set(record.refused) for record in state.history.rounds] == [{"vienna-dias"} if policies else set()] * 2
    assert outcome(state) == outcome(Federation(job, sites, tmp_path / "runner").run())


def test_a_round_with_too_few_usable_replies_ends_the_job(tmp_path: Path) -> None:
    sites = demo_sites("bcn", "msk", bcn=SHARING, msk=SHARING)
    with raises("round.too-few-replies", "federation.min_sites"):
        run_job(small_job(), sites, tmp_path)


def answer_to_train(site: Site, job: JobConfig) -> flwr.app.Message:
    task = to_records(encode_task(task_for(initial_state(job), job)))
    grid = DirectGrid(client_app(lambda context: ("msk", site)), 1)
    return next(iter(grid.send_and_receive([flwr.app.Message(task, 1, TYPES[TRAIN])])))


def test_of_an_error_one_word_leaves_the_site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = small_job()
    absent = SiteConfig(data=FlambyIsicSource(source="flamby_isic", center=0, root=tmp_path / "secret"), policy=OPEN)
    reply = answer_to_train(Site.simulated("msk", job, absent, tmp_path), job)
    assert (reply.has_content(), reply.error.reason) == (False, DATA)
    assert "secret" in caplog.text, "the site's own log says it"

    class Broken(Site):
        def __init__(self) -> None: ...

        def answer(self, *_: object) -> Message:
            raise ZeroDivisionError("patient 42")

    with caplog.at_level(logging.ERROR):
        reply = answer_to_train(Broken(), job)
    assert (reply.has_content(), reply.error.reason) == (False, FAILED)
    assert "patient 42" in caplog.text


def test_two_nodes_of_one_name_are_refused(tmp_path: Path) -> None:
    job = small_job()
    site = Site.simulated("msk", job, demo_sites("msk")["msk"], tmp_path)
    transport = FlowerTransport(DirectGrid(client_app(lambda context: ("msk", site)), 2), job.federation)
    with raises("site.duplicate"):
        transport.sites(TRAIN)
    assert NAME not in TYPES.values()


class SlowGrid(DirectGrid):
    """Has no answer before it was asked three times."""

    asked = 0

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[flwr.app.Message]:
        self.asked += 1
        return super().pull_messages(message_ids) if self.asked % 3 == 0 else []


@pytest.mark.parametrize("seconds", [0, 60])
def test_answers_are_waited_for_also_without_a_limit(seconds: int, tmp_path: Path) -> None:
    job = small_job(federation={"timeout_seconds": seconds})
    sites = demo_sites("msk", "vienna-dias")
    transport = FlowerTransport(SlowGrid(client_app(simulated_site(job, sites, tmp_path)), 2), job.federation)
    assert transport.sites(VALIDATE) == ["msk", "vienna-dias"]
    task = encode_task(task_for(initial_state(job), job))
    answers = dict(transport.ask(VALIDATE, task, ["msk", "vienna-dias"], lambda: False))
    assert {name: type(answer) for name, answer in answers.items()} == {"msk": Message, "vienna-dias": Message}
    with raises("round.no-site"):
        next(transport.ask(VALIDATE, task, [], lambda: False))


def test_nodes_that_do_not_come_are_not_waited_for_without_end(tmp_path: Path) -> None:
    federation = small_job(federation={"timeout_seconds": 1}).federation
    with raises("round.no-site"):
        FlowerTransport(DirectGrid(client_app(lambda context: ("", None)), 1), federation, nodes=2).sites(TRAIN)  # type: ignore[arg-type,return-value]
