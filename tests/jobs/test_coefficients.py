"""The paper's coefficients: complete, valid as options, and as printed."""

from collections import Counter

import pytest

from fedmr_med import methods
from fedmr_med.config import MethodConfig
from fedmr_med.jobs.coefficients import _tables, coefficients, published
from tests.helpers.errors import raises

LISTED = [(dataset, split) for dataset, rows in _tables().items() for split in rows if split != "other"]


@pytest.mark.parametrize(
    ("dataset", "split", "method", "expected"),
    [
        ("fmnist", "P5C2", "fedproc", {"mu": 0.00001}),
        ("fmnist", "P10C3", "feddc", {"alpha": 0.0001}),
        ("svhn", "P10C5", "moon", {"mu": 0.1}),
        ("svhn", "iid", "feddyn", {"alpha": 0.00001}),
        ("cifar10", "IID", "moon", {"mu": 1.0}),
        ("cifar10", "P5C2", "fedmr", {"mu1": 0.1, "mu2": 0.001}),
        ("cifar10", "P10C3", "fedmr", {"mu1": 0.1, "mu2": 0.0001}),
        ("cifar10", "P100C3", "fedprox", {"mu": 0.0001}),
        ("cifar100", "P50C10", "feddc", {"alpha": 0.00001}),
        ("cifar100", "iid", "fedmr", {"mu1": 0.1, "mu2": 0.00001}),
        ("isic2019", None, "fedmr", {"mu1": 0.001, "mu2": 0.001}),
        ("isic2019", None, "fedavg", {}),
        ("cifar10", "P5C2", "fednova", {}),
    ],
)
def test_values_of_the_papers_tables(dataset: str, split: str | None, method: str, expected: dict) -> None:
    assert coefficients(dataset, split, method) == expected
    assert published(dataset, split)


def test_the_tables_have_all_25_rows() -> None:
    assert Counter(dataset for dataset, _ in LISTED) == {
        "fmnist": 5,
        "svhn": 5,
        "cifar10": 7,
        "cifar100": 7,
        "isic2019": 1,
    }


@pytest.mark.parametrize(("dataset", "split"), [*LISTED, ("svhn", "dir0.5"), ("odir", "P3C3")])
def test_every_row_gives_options_that_the_methods_take(dataset: str, split: str) -> None:
    for method in methods.available():
        options = coefficients(dataset, split, method)
        methods.build(MethodConfig(name=method, options=options))
        assert all(1e-6 <= value <= 1 for value in options.values())


def test_a_split_the_paper_does_not_list_gets_the_most_frequent_value() -> None:
    assert not published("svhn", "dir0.5")
    for dataset, rows in _tables().items():
        for method, value in rows["other"].items():
            values = [row[method] for split, row in rows.items() if split != "other"]
            columns = zip(*values, strict=True) if method == "fedmr" else [values]
            for column, chosen in zip(columns, value if method == "fedmr" else [value], strict=True):
                counts = Counter(column)
                assert counts[chosen] == max(counts.values()), (dataset, method)


def test_a_dataset_the_paper_does_not_list_gets_the_methods_defaults() -> None:
    assert coefficients("odir", "P3C3", "moon") == {}
    assert not published("odir", "P3C3")


def test_an_unknown_method_is_refused() -> None:
    with raises("config.unknown-name", "method.name"):
        coefficients("cifar10", "P5C2", "fedsgd")
