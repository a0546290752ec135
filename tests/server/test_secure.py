"""A federation whose statistics are summed securely: the same totals, and nothing of a single site at the server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmr_med.arrays import Arrays, distance
from fedmr_med.config import FederationConfig, JobConfig
from fedmr_med.data.flamby_isic import HOSPITALS
from fedmr_med.errors import FedMRError, WireError
from fedmr_med.evaluation.records import SiteReport
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.privacy.refusals import COHORT, WORDS
from fedmr_med.runner import Federation
from fedmr_med.runner.local_sites import LocalSites, SiteAnswer
from fedmr_med.schema import validated
from fedmr_med.secure.cohort import Cohort
from fedmr_med.server.state import GlobalState, initial_state
from fedmr_med.site import releases
from fedmr_med.site.hospital import Hospital
from fedmr_med.site.secure import COHORT_FILE
from fedmr_med.sites import DemoSource, SiteConfig
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import SECURE as SECURE_KIND
from fedmr_med.wire.messages import SiteReply, TrainTask
from fedmr_med.wire.secure import ASK_CONFIRMED, ASK_MASKED, ASK_OFFER, ASK_SHARES, RELEASE, STEP
from tests.helpers.errors import raises
from tests.helpers.small import CLOSED, OPEN, small_job

SITES = HOSPITALS[:5]
PLAIN = {"federation": {"rounds": 2, "min_sites": 3}, "head": {"exchange": "last"}}
SECURE = {"federation": {"rounds": 2, "min_sites": 3, "secure": "statistics"}, "head": {"exchange": "last"}}
ALL = {"federation": {"rounds": 2, "min_sites": 3, "secure": "all"}, "head": {"exchange": "last"}}


def same_arrays(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


class Watched(Federation):
    """Keeps what passes to and from the server; sites can drop out between the steps of a sum."""

    def __init__(self, *arguments: Any, dropping: dict[str, str] | None = None, dropping_in: str = ""):
        self.replies: list[SiteReply] = []
        self.messages: list[tuple[str, Message]] = []
        self.dropping, self.dropping_in = dropping or {}, dropping_in
        super().__init__(*arguments, make_sites=self._sites)

    def _sites(self, *arguments: Any) -> LocalSites:
        watched = self

        class Noting(LocalSites):
            def reply(self, hospital: Hospital, task: TrainTask) -> SiteReply:
                watched.replies.append(super().reply(hospital, task))
                return watched.replies[-1]

            def answer(self, kind: str, site: str, message: Message, task: TrainTask | None) -> SiteAnswer:
                asked = message.meta
                if (
                    kind == SECURE_KIND
                    and watched.dropping.get(site) == asked[STEP]
                    and str(asked[RELEASE]).startswith(watched.dropping_in)
                ):
                    return SiteAnswer(WireError("gone", code="wire.refused"))
                answered = super().answer(kind, site, message, task)
                if kind == SECURE_KIND and isinstance(answered.answer, Message):
                    watched.messages.append((site, answered.answer))
                return answered

        return Noting(*arguments)


def federation(folder: Path, changes: dict[str, Any], policies: Sequence[SitePolicy] = (), **options: Any) -> Watched:
    job = small_job(**changes)
    given = policies or [OPEN] * len(SITES)
    sites = {
        name: SiteConfig(data=DemoSource(source="demo", center=HOSPITALS.index(name)), policy=policy)
        for name, policy in zip(SITES, given, strict=True)
    }
    return Watched(job, sites, folder, **options)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> GlobalState:
    return federation(tmp_path_factory.mktemp("plain"), PLAIN, [OPEN, CLOSED, OPEN, OPEN, OPEN]).run()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> tuple[Watched, GlobalState]:
    made = federation(tmp_path_factory.mktemp("secure"), SECURE, [OPEN, CLOSED, OPEN, OPEN, OPEN])
    return made, made.run()


@pytest.mark.slow
def test_the_secure_federation_has_the_prototypes_and_scores_of_the_plain_one(
    plain: GlobalState, secure: tuple[Watched, GlobalState]
) -> None:
    state = secure[1]
    assert state.prototypes.available.equal(plain.prototypes.available)
    assert state.prototypes.available.any()
    np.testing.assert_allclose(state.prototypes.means, plain.prototypes.means, atol=1e-3)
    first, same = (s.history.evaluations[0] for s in (state, plain))
    assert first.pooled == same.pooled, "the initial model is the same, and counts are exact"
    assert first.sites == {}
    assert len(state.history.evaluations) == len(plain.history.evaluations) == 3


def test_the_head_of_a_secure_total_is_the_head_of_the_plain_statistics(
    plain: GlobalState, secure: tuple[Watched, GlobalState]
) -> None:
    ours, theirs = secure[1].history.head, plain.history.head
    assert ours is not None
    assert theirs is not None
    assert ours.classes == theirs.classes
    assert ours.evaluation is not None
    assert ours.evaluation.pooled is not None
    for name, array in plain.head.items():
        assert np.corrcoef(array.ravel(), secure[1].head[name].ravel())[0, 1] > 0.99


def test_replies_of_a_secure_job_hold_no_statistics(secure: tuple[Watched, GlobalState]) -> None:
    made, state = secure
    assert len(made.replies) == 2 * len(SITES)
    for reply in made.replies:
        assert reply.prototypes is None
        assert reply.scores is None
    for record in state.history.rounds:
        assert record.secure is not None
        assert record.secure.sites == tuple(sorted(SITES))
        assert all(not site.shared_classes for site in record.sites.values())


def test_a_site_that_opted_out_sends_as_much_as_the_others(secure: tuple[Watched, GlobalState]) -> None:
    sizes: dict[str, list[int]] = {}
    for site, message in secure[0].messages:
        sizes.setdefault(site, []).append(message.size)
    assert len({tuple(numbers) for numbers in sizes.values()}) == 1


def test_masked_vectors_use_all_64_bits_alike(secure: tuple[Watched, GlobalState]) -> None:
    for _, message in secure[0].messages:
        if message.meta[STEP] == ASK_MASKED:
            vector = message.parts[ASK_MASKED]["vector"]
            ones = np.unpackbits(np.frombuffer(vector.tobytes(), np.uint8)).mean()
            assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(64 * len(vector))


@pytest.mark.slow
def test_a_site_lost_between_masking_and_unmasking_is_still_in_the_total(
    tmp_path: Path, secure: tuple[Watched, GlobalState]
) -> None:
    one_round = {"federation": SECURE["federation"] | {"rounds": 1}}
    policies = [OPEN, CLOSED, OPEN, OPEN, OPEN]
    made = federation(tmp_path, one_round, policies, dropping={SITES[2]: ASK_SHARES}).run()
    record = made.history.rounds[0].secure
    assert record is not None
    assert record.sites == tuple(sorted(SITES))
    assert made.history.evaluations[0] == secure[1].history.evaluations[0]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [SITES[2:3], SITES[1:3]])
def test_sites_lost_before_masking_end_the_job_after_the_training_and_it_resumes(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """A total is over the whole cohort: without it a round has no statistics, and the job no scores and no head."""
    changes = SECURE | {"federation": SECURE["federation"] | {"rounds": 1}}
    with raises("round.no-secure-total", "federation.secure") as caught:
        federation(tmp_path, changes, dropping=dict.fromkeys(lost, ASK_MASKED)).run()
    assert f"Missing: {', '.join(sorted(lost))}." in str(caught.value)
    resumed = federation(tmp_path, changes).run()
    record = resumed.history.rounds[0].secure
    assert record is not None
    assert record.error is not None
    assert record.dropped == tuple(sorted(lost))
    assert set(lost) <= resumed.history.rounds[0].sites.keys(), "their models count all the same"
    assert not resumed.prototypes.available.any()
    assert resumed.history.evaluations[-1].pooled is not None
    assert resumed.history.head is not None
    assert resumed.history.head.evaluation is not None


@pytest.mark.slow
@pytest.mark.parametrize("step", [ASK_OFFER, ASK_MASKED, ASK_CONFIRMED, ASK_SHARES])
def test_a_head_that_cannot_be_opened_is_said_aloud_and_the_job_resumes(
    tmp_path: Path, secure: tuple[Watched, GlobalState], step: str
) -> None:
    """Two of five lost at any step are too many."""
    policies = [OPEN, CLOSED, OPEN, OPEN, OPEN]
    watched = federation(tmp_path, SECURE, policies, dropping=dict.fromkeys(SITES[3:], step), dropping_in="head")
    with raises("round.no-secure-total", "federation.secure") as caught:
        watched.run()
    assert ", ".join(sorted(SITES[3:])) in str(caught.value)
    resumed = federation(tmp_path, SECURE, policies).run()
    for name, array in secure[1].head.items():
        np.testing.assert_allclose(resumed.head[name], array, rtol=1e-4, atol=1e-3, err_msg=name)
    assert resumed.history.evaluations == secure[1].history.evaluations


@pytest.mark.slow
def test_a_chain_called_like_a_file_of_the_site_does_not_close_secure_sums(tmp_path: Path) -> None:
    one_round = {"federation": SECURE["federation"] | {"rounds": 1}, "head": {"exchange": "none"}}
    names = (COHORT_FILE, "privacy_ledger.jsonl", "chains", "good")
    for chain in names:
        (tmp_path / chain).mkdir()
        (tmp_path / chain / "client_state").symlink_to(tmp_path / "state")
        (tmp_path / "state").mkdir(exist_ok=True)
        made = federation(tmp_path / chain, one_round | {"chain": chain}).run()
        assert made.history.rounds[0].secure is not None
        assert made.history.rounds[0].secure.error is None
    kept = tmp_path / "state" / SITES[0]
    assert {path.name for path in (kept / "chains").iterdir()} == set(names)
    assert (kept / COHORT_FILE).is_file()


def test_sites_with_another_cohort_say_so(tmp_path: Path) -> None:
    """A server that was restarted knows the sites alone that are connected, and asks fewer than before."""
    one_round = {"federation": ALL["federation"] | {"rounds": 1}}
    for site in SITES:
        Cohort(tmp_path / "client_state" / site / COHORT_FILE).accept([*SITES, "another"], by="steward")
    with raises("round.no-secure-total", "federation.secure") as caught:
        federation(tmp_path, one_round).run()
    assert WORDS[COHORT] in str(caught.value)


@pytest.fixture(scope="module")
def all_summed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Watched, GlobalState]:
    made = federation(tmp_path_factory.mktemp("all"), ALL, [OPEN, CLOSED, OPEN, OPEN, OPEN])
    return made, made.run()


@pytest.mark.slow
def test_models_that_are_summed_securely_give_the_model_of_the_plain_federation(
    plain: GlobalState, all_summed: tuple[Watched, GlobalState]
) -> None:
    for name, array in plain.model.items():
        np.testing.assert_allclose(all_summed[1].model[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
    assert all_summed[1].history.evaluations[0].pooled == plain.history.evaluations[0].pooled


def test_replies_of_a_job_that_sums_all_hold_nothing(all_summed: tuple[Watched, GlobalState]) -> None:
    made, state = all_summed
    assert len(made.replies) == 2 * len(SITES)
    for reply in made.replies:
        assert (reply.model, reply.payload, reply.samples) == ({}, {}, 0)
        assert reply.prototypes is None
        assert reply.scores is None
        assert reply.report == SiteReport()
    assert {site.samples for record in state.history.rounds for site in record.sites.values()} == {0}


# SCAFFOLD divides changes by the learning rate: what a total rounds off has grown after another round.
ROUNDS = {"fedavg": 2, "fedprox": 2, "fedproc": 2, "fednova": 2, "moon": 2, "scaffold": 1}


@pytest.mark.slow
@pytest.mark.parametrize("method", ROUNDS)
def test_every_method_that_needs_sums_alone_can_sum_all(tmp_path: Path, method: str) -> None:
    changes = {"method": {"name": method, "options": {}}, "head": {"exchange": "none"}}
    settings = ALL["federation"] | {"rounds": ROUNDS[method]}
    runs = {
        secure: federation(tmp_path / secure, changes | {"federation": settings | {"secure": secure}}).run()
        for secure in ("none", "all")
    }
    for plain, summed in ((runs["none"].model, runs["all"].model), (runs["none"].method, runs["all"].method)):
        assert plain.keys() == summed.keys()
        for name, array in plain.items():
            np.testing.assert_allclose(summed[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("method", ["feddyn", "feddc"])
def test_a_method_that_needs_every_sites_number_refuses_to_sum_all(tmp_path: Path, method: str) -> None:
    with raises("config.conflict", "federation.secure"):
        federation(tmp_path, ALL | {"method": {"name": method, "options": {}}}).run()


@pytest.mark.slow
def test_a_site_keeps_its_update_short_where_nobody_else_can(tmp_path: Path) -> None:
    changes = {"rounds": 1, "clip_update": 1e-3, "server": {"optimizer": "average"}}
    made = federation(tmp_path, {"federation": ALL["federation"] | changes})
    start = initial_state(made.job).model
    state = made.run()
    moved = distance(state.model, {name: start[name] for name in state.parameters})
    assert 1e-4 < moved <= 1e-3 * (1 + 1e-3)


def test_a_total_that_moves_the_model_too_far_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site with software of its own does not keep its update short; who it is, the total does not tell."""
    genuine = releases.clipped_update

    def unbounded(model: Arrays, received: Arrays, norm: float) -> tuple[Arrays, float]:
        huge = {name: start + 100 * (model[name] - start) for name, start in received.items()}
        return model | huge, genuine(model, received, norm)[1]

    monkeypatch.setattr(releases, "clipped_update", unbounded)
    with raises("round.too-far", "federation.clip_update"):
        federation(tmp_path, {"federation": ALL["federation"] | {"clip_update": 0.1}}).run()


@pytest.mark.slow
def test_without_a_total_of_the_models_the_round_fails_and_can_be_resumed(
    tmp_path: Path, all_summed: tuple[Watched, GlobalState]
) -> None:
    policies = [OPEN, CLOSED, OPEN, OPEN, OPEN]
    with pytest.raises(FedMRError, match=r"Round 1 has no secure total of the models: .* needs 4 masked vectors"):
        federation(tmp_path, ALL, policies, dropping={SITES[1]: ASK_MASKED, SITES[2]: ASK_MASKED}).run()
    assert same_arrays(federation(tmp_path, ALL, policies).run().model, all_summed[1].model)


@pytest.mark.slow
def test_a_server_that_dies_after_the_opening_gets_the_same_total_when_it_resumes(
    tmp_path: Path, all_summed: tuple[Watched, GlobalState], monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = [OPEN, CLOSED, OPEN, OPEN, OPEN]

    def killed(self: object, *arguments: Any) -> GlobalState:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(TrainExchange, "close", killed)
        federation(tmp_path, ALL, policies).run()
    opened = tmp_path / "client_state" / SITES[0] / "chains" / "runner" / "secure" / "opened.jsonl"
    assert len(opened.read_text().splitlines()) == 1
    assert same_arrays(federation(tmp_path, ALL, policies).run().model, all_summed[1].model)


@pytest.mark.slow
def test_a_projected_head_of_a_secure_total_is_that_of_the_plain_statistics(tmp_path: Path) -> None:
    projected = {"head": {"exchange": "last", "projection": 12, "shrinkage": 0.1}}
    heads = []
    for changes in (PLAIN, SECURE):
        one_round = {**projected, "federation": changes["federation"] | {"rounds": 1}}
        heads.append(federation(tmp_path / str(len(heads)), one_round).run().head)
    for name, array in heads[0].items():
        np.testing.assert_allclose(heads[1][name], array, rtol=1e-2, atol=1e-2 * np.abs(array).max())


@pytest.mark.parametrize("changes", [{"robust": "median"}, {"buffers": "first"}])
def test_a_job_that_sums_all_cannot_look_at_single_replies(changes: dict[str, str]) -> None:
    with raises("config.conflict", "secure"):
        validated(FederationConfig, {"rounds": 1, "min_sites": 3, "secure": "all"} | changes, "the test")


@pytest.mark.parametrize(
    ("changes", "key"), [({"sites_per_round": 3, "min_sites": 3}, "sites_per_round"), ({"min_sites": 2}, "min_sites")]
)
def test_a_secure_job_needs_the_same_three_sites_and_more(changes: dict[str, int], key: str) -> None:
    with raises("config.conflict", key):
        validated(FederationConfig, {"rounds": 1, "secure": "statistics"} | changes, "the test")


def test_the_settings_of_a_job_say_whether_it_sums_securely() -> None:
    plain_job, secure_job = small_job(**PLAIN), small_job(**SECURE)
    assert isinstance(plain_job, JobConfig)
    assert plain_job.digest() != secure_job.digest()
