"""An audit finds what an open site gives away, and nothing in masked vectors; as a gate it has an exit code."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedmr_med.cli import app
from fedmr_med.evaluation.results import read_result
from fedmr_med.jobs.folder import write_job
from fedmr_med.lab.audit.defences import DEFENCES, NOISE, NONE, POLICY, SECURE, SMALL_CELLS, TOTAL
from fedmr_med.lab.audit.site_audit import INVERSION
from fedmr_med.lab.audit.visit import visit
from fedmr_med.privacy.findings import Audit
from fedmr_med.server.state import initial_state
from fedmr_med.sites import DemoSource, SiteConfig
from tests.helpers.errors import printed_fault, raises
from tests.helpers.small import small_job

CLOSED = "{share_prototypes: false, training: null}"
SHARING = "{share_prototypes: true, share_metrics: per_class, min_cell_count: 1}"


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["privacy", "audit", *map(str, words)])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    write_job(small_job(), folder / "job", {})
    for center, (name, policy) in enumerate({"rosendahl": CLOSED, "msk": SHARING, "vienna": SHARING}.items(), start=3):
        (folder / name).mkdir()
        (folder / name / "site.yaml").write_text(f"data: {{source: demo, center: {center}}}\npolicy: {policy}\n")
    return folder


@pytest.fixture(scope="module")
def found(place: Path) -> Iterator[Audit]:
    """An audit with a cohort of three, whose gate is closed: an open site gives everything away."""
    with_others = [word for name in ("msk", "vienna") for word in ("--with", place / name / "site.yaml")]
    gate = ["--fail-above", "0.99", "--defence", NONE, "--steps", "30"]
    files = ["--out", place / "audit.json", "--sacro", place / "sacro.json"]
    done = command(place / "rosendahl" / "site.yaml", "--job", place / "job", *with_others, *gate, *files)
    assert done.exit_code == 1, done.output
    assert "above 0.99" in done.output
    yield read_result(place / "audit.json", Audit)


@pytest.mark.slow
def test_an_open_site_gives_everything_away(found: Audit) -> None:
    assert found.defences == DEFENCES
    assert found.success("class counts", NONE) == 1
    assert found.success("class of an image by two rounds", NONE) == 1
    assert found.success("feature of an image by two rounds", NONE) > 0.99


def test_each_defence_stops_what_it_is_for(found: Audit) -> None:
    assert found.success("class counts", POLICY) == 0, "it opted out"
    assert found.success("prototype is one image", SMALL_CELLS) == 0
    assert found.success("withheld images by subtraction", SMALL_CELLS) == 0
    assert found.success("class counts from one large step", SMALL_CELLS) == 0
    assert found.success("feature of an image by two rounds", NOISE) < 0.6
    assert found.success("class of an image by two rounds", NOISE) < 1


def test_the_masked_vector_gives_nothing(found: Audit) -> None:
    exact = ("class counts", "class of an image by two rounds", "prototype is one image")
    for attack in (*exact, "test counts from the confusion matrix"):
        assert found.success(attack, SECURE) == 0, attack
    assert found.success("feature of an image by two rounds", SECURE) < 0.6


def test_a_total_that_is_opened_still_tells_what_comes_between_two_of_them(found: Audit) -> None:
    """The sum hides whose a count is, and no image that comes between two sums of one model."""
    assert found.success("class counts", TOTAL) < found.success("class counts", SMALL_CELLS)
    assert found.success("feature of an image by two rounds", TOTAL) > 0.6
    assert found.cohort == ("msk", "vienna")


def test_a_prototype_of_one_image_is_that_image(found: Audit) -> None:
    first, *_, last = found.sizes
    assert (first.images, first.nearest, first.membership) == (1, 1, 1)
    assert last.membership < 0.6
    assert all(0 <= size.inversion <= 1 for size in found.sizes if size.inversion is not None)
    assert INVERSION in found.attacks


def test_the_model_leaves_under_every_defence(found: Audit) -> None:
    assert len({found.success("membership by loss of the update", defence) for defence in found.defences}) == 1


def test_a_gate_that_is_kept_has_exit_code_0(place: Path, tmp_path: Path) -> None:
    short = ["--job", place / "job", "--steps", "1"]
    done = command(place / "rosendahl" / "site.yaml", *short, "--fail-above", "0.9", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cohort"] == []


def test_a_frozen_backbone_is_inverted_too(place: Path, tmp_path: Path) -> None:
    job = small_job(model={"freeze_backbone": True}, head={"exchange": "none"})
    write_job(job, tmp_path / "job", {})
    done = command(place / "msk" / "site.yaml", "--job", tmp_path / "job", "--steps", "3", "--json")
    assert done.exit_code == 0, done.output
    assert Audit.model_validate_json(done.stdout).success(INVERSION, NONE) >= 0


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--defence", "hope"], ("config.unknown-name", "--defence")),
        (["--defence", TOTAL], ("config.unknown-name", "--defence")),
        (["--with", "1"], ("config.duplicate", "--with")),
        (["--out", "/dev/null/audit.json"], ("system.enotdir", None)),
        (["--sacro", "/dev/null/sacro.json"], ("system.enotdir", None)),
    ],
)
def test_what_cannot_be_audited_is_said_before_the_work(
    place: Path, words: list[str], fault: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from tests.helpers.command_line import run

    site = str(place / "msk" / "site.yaml")
    chosen = ["--with", site] if words[0] == "--with" else words
    assert run(monkeypatch, "privacy", "audit", site, *chosen, "--json") == 2
    assert printed_fault(capsys) == fault


def test_a_round_that_diverges_is_said() -> None:
    job = small_job(train={"optimizer": "sgd", "lr": 100.0, "updates": 8})
    site = SiteConfig(data=DemoSource(source="demo", center=3))
    with raises("audit.features", "train.lr"):
        visit("rosendahl", job, site, initial_state(job))
