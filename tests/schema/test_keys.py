"""Settings explained from their schema: in words, on the command line, and as a file to start from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import yaml
from pydantic import Field

from fedmr_med.config import JobConfig
from fedmr_med.schema import Strict, validated
from fedmr_med.schema.keys import Key, commented_yaml, keys
from fedmr_med.sites import ManifestSource, SiteConfig


class Basket(Strict):
    """What is in a basket.

    Attributes:
        weight: in kilograms. Of the fruit alone.
    """

    weight: float = Field(gt=0, le=10)


class Shop(Strict):
    """A shop.

    Attributes:
        apples, pears: how many there are; None does not count
            them.
        kind: ``small`` or a :class:`Shop` of any size.
        open: True on weekdays.
        names: of the people.
        basket: the one at the door.
    """

    apples: int | None = Field(3, ge=1)
    pears: int = 2
    kind: Literal["small", "large"] = "small"
    open: bool | Literal["often"] = True
    names: tuple[str, ...] = ()
    place: Path = Path()
    basket: Basket | None = None


def sections(section: type[Strict], prefix: str = "") -> Iterator[tuple[str, Key]]:
    for key in keys(section):
        yield f"{prefix}{key.name}", key
        for below in key.sections:
            yield from sections(below, f"{prefix}{key.name}.")


def test_values_and_meaning_come_from_types_and_docstring() -> None:
    found = {key.name: (key.values, key.meaning) for key in keys(Shop)}
    assert found["apples"] == ("a whole number from 1 or `null`", "how many there are; `null` does not count them.")
    assert found["pears"] == ("a whole number", found["apples"][1])
    assert found["kind"] == ("`small` or `large`", "`small` or a `Shop` of any size.")
    assert found["open"] == ("`true`, `false` or `often`", "`true` on weekdays.")
    assert found["names"] == ("a list", "of the people.")
    assert found["place"] == ("a path", "")
    assert found["basket"] == ("a section or `null`", "the one at the door.")
    (weight,) = keys(Basket)
    assert (weight.values, weight.hint) == ("a number above 0 to 10", "In kilograms.")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("apples", "4", 4),
        ("apples", "null", None),
        ("open", "off", False),
        ("open", "often", "often"),
        ("names", "Ann, Bob", ("Ann", "Bob")),
        ("names", "[Ann,Bob]", ("Ann", "Bob")),
        ("names", "null", ("null",)),
        ("kind", "large", "large"),
    ],
)
def test_words_of_the_command_line_become_values(name: str, text: str, value: object) -> None:
    key = next(key for key in keys(Shop) if key.name == name)
    assert getattr(validated(Shop, {name: key.read(text)}, "the test"), name) == value


def test_a_file_to_start_from_has_every_key_and_reads_as_it_was_made() -> None:
    shop = Shop(apples=None, names=("Ann",), basket=Basket(weight=2))
    text = commented_yaml(shop, "All there is.")
    assert validated(Shop, yaml.safe_load(text), "the test") == shop
    assert text.splitlines()[:4] == [
        "# All there is.",
        "# How many there are; null does not count them.",
        "apples: null",
        "pears: 2",
    ]
    assert "basket:\n  # In kilograms.\n  weight: 2.0\n" in text


@pytest.mark.parametrize("whole", [JobConfig, SiteConfig])
def test_every_key_of_a_settings_file_says_what_it_means(whole: type[Strict]) -> None:
    silent = {name for name, key in sections(whole) if not key.meaning}
    assert silent <= {"data.source"}, "a source is explained by its section"
    assert all(key.values for _, key in sections(whole))


def test_a_new_site_file_is_the_defaults() -> None:
    site = SiteConfig(data=ManifestSource(source="manifest", root=Path()))
    content = yaml.safe_load(commented_yaml(site, "A hospital."))
    assert validated(SiteConfig, content, "the test") == site
    assert list(content["policy"]) == list(type(site.policy).model_fields)
