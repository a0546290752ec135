"""Robust aggregation: nothing happens without an attack, and an outlier does not count."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import trim_mean

from fedmr_med.config import FederationConfig, JobConfig
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import RoundRecord, SiteRound
from fedmr_med.exchange.train import TrainExchange
from fedmr_med.prototypes import ClassSums, Prototypes
from fedmr_med.server.robust import Comparison, offences, restrained
from fedmr_med.server.shelf import MEMORY
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.moments import PROTOTYPES
from fedmr_med.wire.codec import encode_reply
from fedmr_med.wire.kinds import TRAIN
from fedmr_med.wire.messages import SiteReply
from tests.helpers.errors import raises
from tests.helpers.methods import Federation, same_model
from tests.helpers.methods import job as tiny_job
from tests.helpers.small import OPEN, first_replies, initial_state, small_hospital, small_job, task_for

SITES = ("bcn", "msk", "rosendahl", "vienna-dias")
BAD = "rosendahl"


@pytest.fixture(scope="module")
def replies(job: JobConfig, state: GlobalState, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SiteReply]:
    return first_replies(job, state, tmp_path_factory.mktemp("sites"), dict.fromkeys(SITES, OPEN))


def closed(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply], *, memory: int = MEMORY, **federation: object
) -> GlobalState:
    changed = job.override({"federation": federation})
    collector = TrainExchange(changed, state, num_sites=len(SITES), memory=memory)
    for site, reply in replies.items():
        collector.offer(site, encode_reply(TRAIN, replace(reply, settings=changed.digest())))
    return collector.close()


def scaled(reply: SiteReply, state: GlobalState, factor: float) -> SiteReply:
    """Return the reply with its update scaled."""
    moved = {
        name: (state.model[name] + factor * (array - state.model[name])).astype(array.dtype)
        for name, array in reply.model.items()
        if name in state.parameters
    }
    return replace(reply, model=reply.model | moved)


def update(model: dict[str, np.ndarray], state: GlobalState) -> np.ndarray:
    return np.concatenate([(model[name] - state.model[name]).ravel() for name in sorted(state.parameters)])


def outliers(replies: Sequence[SiteReply], state: GlobalState, federation: FederationConfig) -> dict[str, str]:
    comparison = Comparison(state, federation)
    for reply in replies:
        comparison.note(reply)
    return comparison.outliers({reply.site: reply for reply in replies})


def left_out(job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]) -> dict[str, str]:
    return outliers(list(replies.values()), state, job.federation)


START = GlobalState(
    model={
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.ones(2, dtype=np.float32),
        "running_mean": np.zeros(3, dtype=np.float32),
        "batches": np.asarray(7),
    },
    parameters=frozenset({"weight", "bias"}),
    prototypes=Prototypes.none(2, 3),
    method={},
)
"""A state of eight weights, for replies whose update a test chooses."""


def moved(site: str, change: np.ndarray, statistics: float = 1, payload: float = 1, feature: float = 1) -> SiteReply:
    """Return the reply to :data:`START` of a site that moves its eight weights, bias first, by ``change``."""
    model = {
        "weight": START.model["weight"] + change[2:].reshape(2, 3).astype(np.float32),
        "bias": START.model["bias"] + change[:2].astype(np.float32),
        "running_mean": np.full(3, statistics, dtype=np.float32),
        "batches": np.asarray(9),
    }
    shared = ClassSums(torch.full((2, 3), feature, dtype=torch.float64), torch.ones(2, dtype=torch.long))
    steps = np.full(2, payload, dtype=np.float32)
    return SiteReply(site, 0, 10, "", model, {"steps": steps}, statistics={"prototypes": shared})


updates_of_sites = st.integers(3, 7).flatmap(lambda n: arrays(np.int8, (n, 8))).map(lambda a: a.astype(np.float64))


def test_without_an_attack_the_default_is_the_plain_mean_bit_for_bit(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    assert job.federation.max_deviation is not None
    replies = {site: replace(reply, samples=max(reply.samples, 100)) for site, reply in replies.items()}
    default, plain = closed(job, state, replies), closed(job, state, replies, max_deviation=None)
    assert same_model(default, plain)
    assert torch.equal(default.prototypes.means, plain.prototypes.means)
    assert default.history.rounds[0].refused == {}


def test_who_tells_of_far_more_images_than_the_others_counts_with_three_times_their_median(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    greedy = replies | {BAD: replace(replies[BAD], samples=1_000_000)}
    others = sorted(reply.samples for site, reply in replies.items() if site != BAD)
    just = replies | {BAD: replace(replies[BAD], samples=3 * others[1])}
    one, other = closed(job, state, greedy), closed(job, state, just)
    assert same_model(one, other)
    assert BAD in one.history.rounds[0].limited
    assert BAD not in other.history.rounds[0].limited
    assert one.history.rounds[0].sites[BAD].samples == 1_000_000, "the record has what the site said"
    three = {site: reply for site, reply in greedy.items() if site != "msk"}
    assert closed(job, state, three).history.rounds[0].limited == ()


def test_who_claims_a_million_images_of_a_class_counts_in_its_prototype_with_three_times_the_median(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    shared = replies[BAD].prototypes
    label = int(shared.counts.argmax())
    claims = torch.zeros_like(shared.counts)
    claims[label] = 1_000_000
    means = shared.sums / shared.counts.clamp(min=1)[:, None]
    hostile = replace(replies[BAD], samples=1_000_000)
    hostile = hostile.with_statistic(PROTOTYPES, ClassSums(means * claims[:, None], claims))
    others = {site: reply for site, reply in replies.items() if site != BAD}

    def share(**federation: object) -> float:
        """Return how far the prototype of the class lies on the way from the others' mean to the attacker's."""
        found = closed(job, state, others | {BAD: hostile}, **federation).prototypes.means[label].double()
        sums = sum((reply.prototypes for reply in others.values()), ClassSums.zeros(*means.shape))
        honest = sums.sums[label] / sums.counts[label]
        way = means[label] - honest
        return float((found - honest) @ way / (way @ way))

    most = 3 * sorted(reply.samples for reply in others.values())[1]
    known = int(sum(reply.prototypes.counts[label] for reply in others.values()))
    assert share(max_deviation=None) > 0.999, "before: its prototype alone"
    assert share() == pytest.approx(most / (most + known), abs=0.02), "the largest of the others is limited as well"
    with raises("wire.counts"):
        # More images of a class than it trains with are refused whole.
        closed(job, state, {BAD: replace(hostile, samples=shared.counts.sum().item())})


@pytest.mark.parametrize("factor", [-0.3, -1.3])
@pytest.mark.parametrize("bad", [1, 2])
def test_updates_turned_round_are_left_out_at_any_length(bad: int, factor: float) -> None:
    random = np.random.default_rng(bad)
    changes = random.standard_normal(8) + 0.5 * random.standard_normal((6, 8))
    federation = FederationConfig(rounds=1)
    assert outliers([moved(f"site-{i}", row) for i, row in enumerate(changes)], START, federation) == {}
    changes[:bad] *= factor
    found = outliers([moved(f"site-{i}", row) for i, row in enumerate(changes)], START, federation)
    assert set(found) == {f"site-{i}" for i in range(bad)}


def test_nobody_is_judged_by_direction_where_updates_have_none_in_common() -> None:
    drawn = np.random.default_rng(0).standard_normal((5, 8))
    drawn[0] = -drawn[1]
    assert outliers([moved(f"site-{i}", row) for i, row in enumerate(drawn)], START, FederationConfig(rounds=1)) == {}


def test_a_long_update_counts_with_one_and_a_half_times_the_median_length(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    long = {**replies, BAD: scaled(replies[BAD], state, 2)}
    kept = {reply.site: update(reply.model, state) for reply in restrained(long.values(), state, job.federation)}
    sent = {site: update(reply.model, state) for site, reply in long.items()}
    median = np.median([np.linalg.norm(change) for change in sent.values()])
    assert np.linalg.norm(kept[BAD]) == pytest.approx(1.5 * median, rel=1e-3)
    assert all(np.array_equal(kept[site], sent[site]) for site in sent if site != BAD)


@pytest.mark.parametrize("rule", ["none", "clip", "median", "trimmed_mean"])
@pytest.mark.parametrize("factor", [1, -100], ids=["honest", "attacked"])
def test_replies_that_wait_in_a_file_count_as_those_in_memory(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply], rule: str, factor: float
) -> None:
    sent = replies | {BAD: scaled(replies[BAD], state, factor)}
    some = sum(array.nbytes for array in state.model.values()) * 2
    whole, part, none = (closed(job, state, sent, memory=memory, robust=rule) for memory in (MEMORY, some, 0))
    assert (BAD in whole.history.rounds[0].refused) == (factor < 0)
    for other in (part, none):
        assert same_model(other, whole)
        assert torch.equal(other.prototypes.means, whole.prototypes.means)
        assert other.history.rounds[0].refused == whole.history.rounds[0].refused
        assert other.history.rounds[0].sites == whole.history.rounds[0].sites


@pytest.mark.parametrize("factor", [-100, -5, 10, 1000])
def test_an_outlier_is_left_out_whole_and_named(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply], factor: float
) -> None:
    attacked = replies | {BAD: scaled(replies[BAD], state, factor)}
    new = closed(job, state, attacked)
    assert same_model(new, closed(job, state, {site: replies[site] for site in SITES if site != BAD}))
    assert "left out as an outlier: update" in new.history.rounds[0].refused[BAD]
    assert BAD not in new.accepted


def test_an_outlier_counts_for_the_quorum(job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]) -> None:
    attacked = replies | {BAD: scaled(replies[BAD], state, -100)}
    assert BAD in closed(job, state, attacked, min_sites=4).history.rounds[0].refused


def test_statistics_payload_and_prototypes_are_measured_too(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    name = next(name for name in state.model if name.endswith("running_var"))
    blown = replace(replies[BAD], model=replies[BAD].model | {name: replies[BAD].model[name] + 1e6})
    assert "BatchNorm" in left_out(job, state, replies | {BAD: blown})[BAD]
    steps = {site: np.asarray(1e6 if site == BAD else 10, dtype=np.float32) for site in SITES}
    payloads = {site: replace(reply, payload={"steps": steps[site]}) for site, reply in replies.items()}
    assert left_out(job, state, payloads).keys() == {BAD}
    shared = replies[BAD].prototypes
    blown = replies[BAD].with_statistic(PROTOTYPES, ClassSums(100 * shared.sums, shared.counts))
    assert "prototypes" in left_out(job, state, replies | {BAD: blown})[BAD]


def test_sites_of_other_classes_and_of_no_class_are_no_outliers(tmp_path: Path) -> None:
    federation = Federation(tiny_job("fedavg"), tmp_path)
    replies = [site.train(federation.task()) for site in federation.sites.values()]
    assert outliers(replies, federation.state, federation.job.federation) == {}
    still = [replace(reply, model=federation.state.model) for reply in replies]
    assert outliers(still, federation.state, federation.job.federation) == {}, "nobody moved"


def classes_at(*places: int | None, noise: float = 0.1, seed: int = 0) -> ClassSums:
    """Return sums of classes that lie at the given of eight places; None where a class is not held."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((8, 16)) + 1
    counts = torch.tensor([0 if place is None else 20 for place in places])
    means = [np.zeros(16) if p is None else centres[p] + noise * random.standard_normal(16) for p in places]
    return ClassSums(torch.from_numpy(np.stack(means)) * counts[:, None], counts)


def sharing(replies: dict[str, SiteReply], **shared: ClassSums | None) -> dict[str, SiteReply]:
    names = {site.replace("-", "_"): site for site in replies}
    return replies | {
        names[name]: replies[names[name]].with_statistic(PROTOTYPES, sums) for name, sums in shared.items()
    }


def test_a_site_whose_classes_lie_elsewhere_is_left_out(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    """Labels in the wrong order give an update of the usual length."""
    right = {name: classes_at(*range(8), seed=i) for i, name in enumerate(("bcn", "msk", "vienna_dias"))}
    assert left_out(job, state, sharing(replies, **right, rosendahl=classes_at(*range(8), seed=9))) == {}
    wrong = left_out(job, state, sharing(replies, **right, rosendahl=classes_at(*reversed(range(8)), seed=9)))
    assert wrong.keys() == {BAD}
    assert "are its labels right?" in wrong[BAD]


def test_a_site_with_classes_of_its_own_is_not_judged_by_them(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    four, none = (0, 1, 2, 3), (None,) * 4
    right = {name: classes_at(*four, *none, seed=i) for i, name in enumerate(("bcn", "msk", "vienna_dias"))}
    apart = classes_at(*none, 4, 5, 6, 7, seed=9)
    assert left_out(job, state, sharing(replies, **right, rosendahl=apart)) == {}
    assert left_out(job, state, sharing(replies, **right, rosendahl=None)) == {}
    one_alike = classes_at(0, *none[1:], 4, 5, 6, 7, seed=9)
    assert left_out(job, state, sharing(replies, **right, rosendahl=one_alike)) == {}


@pytest.mark.parametrize(
    ("places", "refused"),
    [
        ((0, 1), False),
        ((2, 3), False),
        ((4, 2), False),
        ((1, 0), True),
        ((0, 1, 2), False),
        ((1, 2, 0), True),
        ((0, 2, 1), True),
        ((0, 1, 2, 3), False),
        ((1, 0, 3, 2), True),
    ],
)
def test_less_agreement_is_asked_of_a_site_with_few_classes(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply], places: tuple[int, ...], refused: bool
) -> None:
    """A hospital of the demo with two classes was left out in two rounds of seven: one line may point anywhere."""
    right = {name: classes_at(*range(8), seed=i) for i, name in enumerate(("bcn", "msk", "vienna_dias"))}
    own = classes_at(*places, *(None,) * (8 - len(places)), seed=9)
    assert (left_out(job, state, sharing(replies, **right, rosendahl=own)).keys() == {BAD}) is refused


def test_where_no_two_sites_agree_nobody_is_left_out(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    """As in a first round, when each site's network has features of its own."""
    noisy = {name: classes_at(*range(8), noise=20, seed=i) for i, name in enumerate(("bcn", "msk", "vienna_dias"))}
    assert left_out(job, state, sharing(replies, **noisy, rosendahl=classes_at(*reversed(range(8))))) == {}


def test_half_of_the_sites_are_not_left_out_by_the_other_half(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    """Otherwise a round could end with nobody in it."""
    odd = {site: scaled(replies[site], state, factor) for site, factor in (("bcn", 400.0), (BAD, -400.0))}
    assert left_out(job, state, replies | odd) == {}


@pytest.mark.parametrize(
    ("sites", "odd"), [(3, 1), (3, 2), (4, 1), (4, 2), (5, 2), (5, 3), (6, 2), (6, 3), (7, 3), (7, 4)]
)
def test_sites_odd_in_different_ways_are_left_out_while_they_are_a_minority(sites: int, odd: int) -> None:
    """Each of them stands out in a measure of its own, so that every measure alone would leave it out."""
    ways = [{"statistics": 1000.0}, {"payload": 1000.0}, {"feature": 1000.0}, {"change": 1000 * np.ones(8)}]
    usual = [{"change": change, "statistics": change[0]} for change in np.random.default_rng(0).standard_normal((7, 8))]
    replies = [
        moved(f"site-{number}", **(usual[number] | (ways[number] if number < odd else {}))) for number in range(sites)
    ]
    names = {f"site-{number}" for number in range(odd)}
    assert outliers(replies, START, FederationConfig(rounds=1)).keys() == (names if 2 * odd < sites else set())


def test_clip_lets_nobody_exceed_the_median(job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]) -> None:
    clip = FederationConfig(rounds=1, robust="clip")
    norms = [np.linalg.norm(update(reply.model, state)) for reply in replies.values()]
    after = [np.linalg.norm(update(r.model, state)) for r in restrained(list(replies.values()), state, clip)]
    assert max(after) == pytest.approx(np.median(norms), rel=1e-4)


@given(updates_of_sites)
def test_clip_shortens_a_long_update_and_keeps_its_direction(updates: np.ndarray) -> None:
    replies = [moved(f"site-{number}", change) for number, change in enumerate(updates)]
    lengths = [float(np.linalg.norm(change)) for change in updates]
    clipped = restrained(replies, START, FederationConfig(rounds=1, robust="clip"))
    for change, length, reply in zip(updates, lengths, clipped, strict=True):
        factor = min(1.0, float(np.median(lengths)) / length) if length else 1.0
        np.testing.assert_allclose(update(reply.model, START), factor * change, atol=1e-3)
        assert reply.model["running_mean"].tolist() == [1, 1, 1]
        assert reply.model["batches"] == 9


@pytest.mark.parametrize(("sites", "trim"), [(10, 0.1), (10, 0.2), (10, 0.4), (7, 0.3), (5, 0.2), (3, 0.4), (4, 0.49)])
def test_the_trimmed_mean_is_that_of_scipy(sites: int, trim: float) -> None:
    updates = np.random.default_rng(sites).standard_normal((sites, 8))
    replies = [moved(f"site-{n}", change, payload=change[0]) for n, change in enumerate(updates)]
    rule = FederationConfig(rounds=1, robust="trimmed_mean", trim=trim)
    for reply in restrained(replies, START, rule):
        np.testing.assert_allclose(update(reply.model, START), trim_mean(updates, trim), atol=1e-5)
        np.testing.assert_allclose(reply.payload["steps"], trim_mean(updates[:, 0], trim), atol=1e-5)


def test_a_trimmed_mean_leaves_out_at_least_the_two_ends() -> None:
    updates = np.array([[0.0] * 8, [1.0] * 8, [2.0] * 8, [1000.0] * 8])
    replies = [moved(f"site-{number}", change) for number, change in enumerate(updates)]
    rule = FederationConfig(rounds=1, robust="trimmed_mean", trim=0.01)
    for reply in restrained(replies, START, rule):
        np.testing.assert_allclose(update(reply.model, START), 1.5)


@pytest.mark.parametrize("sites", [3, 4, 5, 6])
def test_the_median_is_that_of_every_coordinate(sites: int) -> None:
    updates = np.random.default_rng(sites).standard_normal((sites, 8))
    replies = [moved(f"site-{number}", change) for number, change in enumerate(updates)]
    for reply in restrained(replies, START, FederationConfig(rounds=1, robust="median")):
        np.testing.assert_allclose(update(reply.model, START), np.median(updates, axis=0), atol=1e-5)


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
@pytest.mark.parametrize("method", ["fedmr", "feddc", "fednova"])
def test_coordinate_wise_rules_stay_between_the_honest_values(method: str, rule: str, tmp_path: Path) -> None:
    job = small_job(method)
    state = initial_state(job)
    honest = {site: small_hospital(site, job, tmp_path).train(task_for(state, job)) for site in SITES}
    attacked = honest | {BAD: scaled(honest[BAD], state, -1000)}
    new = closed(job, state, attacked, robust=rule, max_deviation=None)
    others = np.stack([update(reply.model, state) for site, reply in honest.items() if site != BAD])
    moved = update(new.model, state)
    if method == "feddc":  # the server adds the mean drift to the mean of the models
        moved = moved / 2
    assert (moved >= others.min(axis=0) - 1e-5).all()
    assert (moved <= others.max(axis=0) + 1e-5).all()


def test_two_replies_have_no_majority(job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]) -> None:
    two = [replies["bcn"], scaled(replies[BAD], state, 1000)]
    for rule in ("none", "clip", "median", "trimmed_mean"):
        assert restrained(two, state, FederationConfig(rounds=1, robust=rule)) == two
    assert outliers(two, state, FederationConfig(rounds=1)) == {}


def test_a_site_that_never_fits_in_is_put_into_quarantine(
    job: JobConfig, state: GlobalState, replies: dict[str, SiteReply]
) -> None:
    part = SiteRound(samples=9, shared_classes=(), bytes_up=0, bytes_down=0)
    history = History()
    for number in (1, 2, 3):
        refused = {BAD: "why"} | ({"msk": "late"} if number == 2 else {})
        taken = {site: part for site in SITES if site not in refused}
        history = history.with_round(RoundRecord(round=number, sites=taken, refused=refused))
    assert offences(history) == {BAD: 3}
    later = replace(state, history=History(rounds=history.rounds))
    small = {site: replace(reply, samples=9).with_statistic(PROTOTYPES, None) for site, reply in replies.items()}
    assert set(closed(job, later, small).history.rounds[-1].sites) == set(SITES)
    changed = job.override({"federation": {"quarantine_after": 3}})
    collector = TrainExchange(changed, later, num_sites=4)
    small = {site: replace(reply, settings=changed.digest()) for site, reply in small.items()}
    for site, reply in small.items():
        if site == BAD:
            with raises("wire.quarantine"):
                collector.offer(site, encode_reply(TRAIN, reply))
        else:
            collector.offer(site, encode_reply(TRAIN, reply))
    assert BAD in collector.close().history.rounds[-1].refused
