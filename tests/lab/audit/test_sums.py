"""What a secure sum costs, signed and unsigned: the vector is nearly all that a site sends."""

from pathlib import Path

from fedmr_med.errors import ConfigError
from fedmr_med.lab.audit.sums import certified, sum_cost, unsigned
from tests.helpers.certificates import Authority
from tests.helpers.errors import raises


def test_a_sum_costs_a_site_little_more_than_its_vector() -> None:
    cost = sum_cost(unsigned(6), 2, 5128)
    assert 8 * 5128 < cost.bytes_up < 1.1 * 8 * 5128
    assert cost.bytes_down < 10_000
    assert cost.bytes_up + cost.bytes_down < 1_000_000, "less than a megabyte"


def test_certificates_come_on_top(tmp_path: Path) -> None:
    authority = Authority()
    for name in ("a", "b", "c"):
        authority.kit(tmp_path / name / "startup", name)
    (authority.kit(tmp_path / "lead" / "startup", "lead", "lead") / "fed_client.json").unlink()
    signed, plain = sum_cost(certified(tmp_path), 0, 100), sum_cost(unsigned(3), 0, 100)
    assert signed.bytes_up > plain.bytes_up + 3 * 256, "a key, an offer and a confirmation are signed"
    assert signed.bytes_down > plain.bytes_down + 3 * 1000, "the roster brings the certificates of all"


def test_what_cannot_be_opened_is_not_measured(tmp_path: Path) -> None:
    with raises("secure.too-few-left", kind=ConfigError):
        sum_cost(unsigned(6), 3, 10)
    with raises("site.none", "--kits"):
        certified(tmp_path)
