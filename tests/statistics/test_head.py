"""The closed-form head: additive, equal to the pooled solution and to scikit-learn's, and at its edges."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.prototypes import ClassSums
from fedmr_med.statistics.head import ABSENT, HeadStatistics, choose_shrinkage, solve

C, D = 4, 6


def samples(seed: int, size: int = 80, *, classes: int = C, d: int = D, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return correlated features about distant class means, every class at least twice."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(classes).repeat(2), torch.randint(classes, (size,), generator=generator)])
    mixing = torch.randn(d, d, generator=generator)
    means = 3 * torch.randn(classes, d, generator=generator)
    noise = torch.randn(len(labels), d, generator=generator) @ mixing
    return means[labels] + spread * noise, labels


def of(features: Tensor, labels: Tensor, classes: int = C) -> HeadStatistics:
    return HeadStatistics.from_features(features, labels, classes)


def total(parts: list[HeadStatistics]) -> HeadStatistics:
    return sum(parts[1:], start=parts[0])


@st.composite
def dealings(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels, and the site of each sample: at random, or one site per class."""
    features, labels = samples(draw(st.integers(0, 2**31)), draw(st.integers(0, 60)))
    offset = draw(st.sampled_from([0.0, 1e3]))
    sites = draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    by_class = labels % sites
    site = by_class if draw(st.booleans()) else torch.randint(sites, labels.shape, generator=generator)
    return features + offset, labels, site


@given(dealings(), st.sampled_from([0.01, 0.3, 1.0]), st.sampled_from(["uniform", "counts"]))
@settings(max_examples=100, deadline=None)
def test_who_holds_which_samples_does_not_matter(
    dealing: tuple[Tensor, Tensor, Tensor], shrinkage: float, prior: str
) -> None:
    features, labels, site = dealing
    parts = [of(features[site == k], labels[site == k]) for k in site.unique()]
    pooled = of(features, labels)
    for dealt in (total(parts), total(parts[::-1])):
        assert torch.equal(dealt.sums.counts, pooled.sums.counts)
        torch.testing.assert_close(dealt.scatter, pooled.scatter, rtol=1e-6, atol=1e-6 * float(pooled.scatter.trace()))
        for one, other in zip(solve(dealt, shrinkage, prior), solve(pooled, shrinkage, prior), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * float(other.abs().max()))


@given(st.integers(0, 2**31), st.sampled_from([0.01, 0.1, 0.5]))
@settings(max_examples=50, deadline=None)
def test_equals_scikit_learn_with_the_prior_of_the_counts(seed: int, shrinkage: float) -> None:
    features, labels = samples(seed)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(features.double(), labels)
    weight, bias = solve(of(features, labels), shrinkage, "counts")
    # Theirs divides the scatter by N, ours by N - C.
    factor = (len(labels) - C) / len(labels)
    np.testing.assert_allclose(weight, factor * theirs.coef_, rtol=1e-6, atol=1e-8)
    log_prior = np.log(theirs.priors_)
    np.testing.assert_allclose(bias.numpy() - log_prior, factor * (theirs.intercept_ - log_prior), rtol=1e-6, atol=1e-6)


@given(st.integers(0, 2**31), st.sampled_from([0.01, 0.1, 0.5]))
@settings(max_examples=50, deadline=None)
def test_equals_scikit_learn_with_a_uniform_prior_on_balanced_classes(seed: int, shrinkage: float) -> None:
    # On unbalanced classes theirs weighs the classes' covariances by the prior, ours by their samples.
    features, labels = samples(seed, 0)
    more = torch.randn(8, len(labels), D, generator=torch.Generator().manual_seed(seed)).flatten(0, 1)
    features, labels = torch.cat([features, features.repeat(8, 1) + more]), labels.repeat(9)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[1 / C] * C)
    theirs.fit(features.double(), labels)
    weight, bias = solve(of(features, labels), shrinkage, "uniform")
    factor = (len(labels) - C) / len(labels)
    np.testing.assert_allclose(weight, factor * theirs.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(bias + np.log(C), factor * (theirs.intercept_ + np.log(C)), rtol=1e-6, atol=1e-6)


def test_scatter_is_the_sum_over_classes_about_their_means() -> None:
    features, labels = samples(0)
    expected = torch.zeros(D, D, dtype=torch.float64)
    for c in range(C):
        z = features[labels == c].double()
        for row in z - z.mean(0):
            expected += torch.outer(row, row)
    statistics = of(features, labels)
    torch.testing.assert_close(statistics.scatter, expected)
    assert statistics.freedom == len(labels) - C
    assert statistics.scatter.dtype == statistics.sums.sums.dtype == torch.float64


def test_nothing_of_a_class_that_may_not_be_shared_is_in_the_statistics() -> None:
    features, labels = samples(1)
    allowed = torch.tensor([True, False, True, True])
    kept = allowed[labels]
    restricted = HeadStatistics.from_features(features, labels, C, classes=allowed)
    without = of(features[kept], labels[kept])
    assert torch.equal(restricted.scatter, without.scatter)
    assert torch.equal(restricted.sums.sums, without.sums.sums)
    assert restricted.sums.counts[1] == 0
    features[labels == 1] = float("nan")  # not even a NaN of it gets through
    assert torch.equal(HeadStatistics.from_features(features, labels, C, classes=allowed).scatter, without.scatter)


def test_nothing_at_all_may_be_shared() -> None:
    features, labels = samples(1)
    nothing = HeadStatistics.from_features(features, labels, C, classes=torch.zeros(C, dtype=torch.bool))
    everything = of(features, labels)
    both = nothing + everything
    assert not nothing.sums.counts.any()
    assert torch.equal(both.scatter, everything.scatter)
    assert torch.equal(both.sums.sums, everything.sums.sums)


def test_a_class_without_samples_never_wins() -> None:
    features, labels = samples(2)
    present = labels != 2
    for prior in ("uniform", "counts"):
        weight, bias = solve(of(features[present], labels[present]), 0.1, prior)
        assert not weight[2].any()
        assert bias[2] == ABSENT
        scores = (features.double() @ weight.T + bias).float()
        assert torch.isfinite(scores).all()
        assert not (scores.argmax(1) == 2).any()
        assert torch.equal(scores.softmax(1)[:, 2], torch.zeros(len(labels)))
        rest = [0, 1, 3]
        relabelled = torch.tensor([0, 1, -1, 2])[labels[present]]
        small = solve(of(features[present], relabelled, 3), 0.1, prior)
        torch.testing.assert_close(weight[rest], small.weight)
        torch.testing.assert_close(bias[rest], small.bias)


def test_the_nearest_class_mean_where_nobody_shares_scatter() -> None:
    features, labels = samples(3)
    sums = ClassSums.from_features(features, labels, C)
    weight, bias = solve(HeadStatistics.from_sums(sums), 0.1)
    means = sums.sums / sums.counts[:, None]
    nearest = torch.cdist(features.double(), means).argmin(1)
    assert torch.equal((features.double() @ weight.T + bias).argmax(1), nearest)


def test_single_samples_have_no_scatter_and_give_the_nearest_class_mean() -> None:
    features, labels = torch.eye(C), torch.arange(C)
    weight, bias = solve(of(features, labels), 0.1)
    assert torch.equal((features.double() @ weight.T + bias).argmax(1), labels)


def test_a_site_without_scatter_counts_in_the_means_alone() -> None:
    features, labels = samples(4)
    first = torch.arange(len(labels)) % 2 == 0
    part = of(features[first], labels[first])
    mixed = part + HeadStatistics.from_sums(ClassSums.from_features(features[~first], labels[~first], C))
    pooled = of(features, labels)
    torch.testing.assert_close(mixed.sums.sums, pooled.sums.sums)
    assert torch.equal(mixed.scatter, part.scatter)
    assert mixed.freedom == part.freedom


def test_no_shrinkage_on_a_singular_covariance() -> None:
    features, labels = samples(5)
    features = torch.cat([features, features[:, :1], torch.ones(len(labels), 1)], 1)  # one copy, one constant
    weight, bias = solve(of(features, labels), 0.0)
    assert torch.isfinite(weight).all()
    plain = solve(of(features[:, :D], labels), 0.0)
    torch.testing.assert_close(
        features.double() @ weight.T + bias, features[:, :D].double() @ plain.weight.T + plain.bias
    )


def test_full_shrinkage_is_the_nearest_class_mean() -> None:
    features, labels = samples(6)
    weight, bias = solve(of(features, labels), 1.0)
    sums = ClassSums.from_features(features, labels, C)
    nearest = torch.cdist(features.double(), sums.sums / sums.counts[:, None]).argmin(1)
    assert torch.equal((features.double() @ weight.T + bias).argmax(1), nearest)


def test_few_samples_ask_for_more_shrinkage_than_many() -> None:
    d = 40
    features, labels = samples(7, 6000, d=d, spread=0.7)
    held = HeadStatistics.from_features(features[4000:], labels[4000:], C)
    few, many = (of(features[:n], labels[:n]) for n in (60, 4000))
    candidates = (0.0001, 0.001, 0.01, 0.1, 0.5)
    chosen = [choose_shrinkage(part, held, candidates=candidates) for part in (few, many)]
    assert chosen[0] > chosen[1]


def test_the_choice_is_nearly_as_good_as_the_best_on_the_held_out_samples() -> None:
    for seed in range(5):
        features, labels = samples(seed, 3000, d=40, spread=0.7)
        z, y = features.double(), labels
        parts = of(features[:80], labels[:80]), of(features[80:], labels[80:])
        accuracy = {}
        for shrinkage in (0.001, 0.01, 0.1, 0.5, 0.9):
            weight, bias = solve(parts[0], shrinkage)
            accuracy[shrinkage] = float(((z[80:] @ weight.T + bias).argmax(1) == y[80:]).double().mean())
        chosen = choose_shrinkage(*parts, candidates=tuple(accuracy))
        assert accuracy[chosen] > max(accuracy.values()) - 0.01


def test_the_choice_does_not_depend_on_who_holds_what() -> None:
    features, labels = samples(8, 300)
    held = torch.arange(len(labels)) % 5 == 0
    pooled = [of(features[part], labels[part]) for part in (~held, held)]
    dealt = [
        total([of(features[p & (labels == c)], labels[p & (labels == c)]) for c in range(C)]) for p in (~held, held)
    ]
    assert choose_shrinkage(*pooled) == choose_shrinkage(*dealt)


def test_dead_features_do_not_stop_the_solver() -> None:
    # Found by search: LAPACK's solver for all 256 directions fails on this covariance, of which 236 are exactly 0.
    torch.manual_seed(177)
    features = torch.zeros(30, 256, dtype=torch.float64)
    live = torch.randperm(256)[:20]
    features[:, live] = torch.randn(30, 20, dtype=torch.float64).relu() * torch.exp(torch.randn(20).double() * 18)
    covariance = features.T @ features / 30
    sums = ClassSums(torch.eye(2, 256, dtype=torch.float64), torch.tensor([33, 33]))
    statistics = HeadStatistics(sums, sums, covariance * 64)
    assert statistics.freedom == 64, "a power of two, so that the solver gets this covariance to the bit"
    weight, bias = solve(statistics, 0.1)
    assert torch.isfinite(weight).all()
    assert torch.isfinite(bias).all()


def test_dead_features_take_no_part() -> None:
    features, labels = samples(10)
    wide = torch.zeros(len(labels), 40)
    live = torch.arange(3, 3 + 5 * D, 5)
    wide[:, live] = features
    weight, bias = solve(of(wide, labels), 0.0)
    plain = solve(of(features, labels), 0.0)
    torch.testing.assert_close(weight[:, live], plain.weight)
    torch.testing.assert_close(bias, plain.bias)
    dead = torch.ones(40, dtype=torch.bool)
    dead[live] = False
    assert not weight[:, dead].any()


def test_refusals() -> None:
    features, labels = samples(9)
    statistics = of(features, labels)
    none = HeadStatistics.zeros(C, D)
    with pytest.raises(ValueError, match="no samples"):
        solve(none, 0.1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        solve(statistics, 1.5)
    with pytest.raises(ValueError, match="prior"):
        solve(statistics, 0.1, "other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features must be"):
        of(features, labels[:-1])
    with pytest.raises(ValueError, match="bool mask"):
        HeadStatistics.from_features(features, labels, C, classes=torch.ones(C))
    with pytest.raises(ValueError, match="scatter"):
        HeadStatistics(statistics.sums, statistics.sums, torch.zeros(D, D + 1))
    with pytest.raises(ValueError, match="scatter of both parts"):
        choose_shrinkage(statistics, none)
    with pytest.raises(ValueError, match="no shrinkages"):
        choose_shrinkage(statistics, statistics, candidates=())
    odd = labels % 2 == 1
    with pytest.raises(ValueError, match="not in the head"):
        choose_shrinkage(of(features[odd], labels[odd]), statistics)


def test_the_bias_of_absent_classes_is_one_that_sites_accept_and_half_precision_holds() -> None:
    bias = torch.full((100,), ABSENT)
    assert torch.isfinite(bias.half()).all()
    assert float(bias.norm()) < SitePolicy().training.max_norm
    assert float(torch.softmax(torch.tensor([0.0, ABSENT]), 0)[1]) == 0.0
