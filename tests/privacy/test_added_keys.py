"""A key that a package outside the repository adds to the site policy: one file and an entry point."""

import runpy
from pathlib import Path

import pytest
from nvflare.apis.fl_constant import ReturnCode
from typer.testing import CliRunner

from fedmr_med.cli.site import app
from fedmr_med.deploy.kit import site_settings
from fedmr_med.errors import PolicyError
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.privacy import policy, refusals
from fedmr_med.privacy.explain import explain
from fedmr_med.privacy.policy import PolicyKey, SitePolicy
from fedmr_med.registry import Registry
from fedmr_med.schema import dump_yaml, validated
from fedmr_med.schema.keys import commented_yaml, keys
from fedmr_med.sites import SiteConfig, load_site
from tests.helpers import REPOSITORY
from tests.helpers.errors import raises
from tests.helpers.packages import write_package
from tests.helpers.site_at_work import SiteAtWork
from tests.helpers.small import small_job

CODE = '''
"""A hospital that takes part in short jobs only."""

from pydantic import Field

from fedmr_med.errors import PolicyError
from fedmr_med.privacy.policy import PolicyKey


class MaxRounds(PolicyKey):
    """How long a job may be.

    Attributes:
        max_rounds: rounds of a job at most. Longer ones get no answer.
    """

    max_rounds: int = Field(ge=1)

    def check(self, job):
        if job["federation"]["rounds"] > self.max_rounds:
            raise PolicyError("federation.rounds is above policy.max_rounds.", code="policy.rounds", key="max_rounds")

    def sentence(self):
        return f"Jobs of more than {self.max_rounds} rounds are refused."


class Misnamed(MaxRounds):
    pass


class Unfinished(PolicyKey):
    unfinished: int


class Crashing(PolicyKey):
    crashing: int

    def check(self, job):
        raise KeyError(job["federation"]["roundz"])

    def sentence(self):
        return ""
'''
ENTRIES = {
    "max_rounds": "our_policy:MaxRounds",
    "broken": "our_policy:Lost",
    "misnamed": "our_policy:Misnamed",
    "unfinished": "our_policy:Unfinished",
    "crashing": "our_policy:Crashing",
    "training": "our_policy:MaxRounds",
}
SITE = "data: {source: demo, center: 5}\npolicy: {share_prototypes: false, training: null, max_rounds: 2}\n"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Install a package that has these keys."""
    entries = {name: ENTRIES[name] for name in names}
    write_package(folder, "our-policy", {"our_policy": CODE}, {"fedmr_med.policy": entries})
    monkeypatch.syspath_prepend(folder)
    known = policy.POLICY_KEYS
    fresh = Registry[type[PolicyKey]](known.kind, group=known.group, fits=known._fits)
    monkeypatch.setattr(policy, "POLICY_KEYS", fresh)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "packages", monkeypatch, "max_rounds")


@pytest.mark.usefixtures("installed")
def test_it_is_read_written_and_explained_like_the_others(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    site = load_site(path)
    assert "Jobs of more than 2 rounds are refused." in explain(site.policy)
    assert validated(SiteConfig, {"data": site.data, "policy": site.policy.model_dump(mode="json")}, "") == site
    assert "max_rounds: 2" in dump_yaml(site)
    assert "  # Rounds of a job at most.\n  max_rounds: 2\n" in commented_yaml(site, "")
    reference = runpy.run_path(str(REPOSITORY / "docs/settings.py"))["page"]()
    assert "| `max_rounds` | a whole number from 1 | required | rounds of a job at most." in reference
    unset = commented_yaml(SiteConfig(data=site.data), "")
    assert "  # max_rounds (a whole number from 1): Rounds of a job at most.\n" in unset


@pytest.mark.usefixtures("installed")
def test_it_has_an_option(kits: Path) -> None:
    arguments = ["policy", "set", "--kit", str(kits / "msk")]
    CliRunner().invoke(app, [*arguments, "--max-rounds", "3"], catch_exceptions=False)
    assert site_settings(kits / "msk").policy.model_extra == {"max_rounds": 3}
    with raises("config.greater-than-equal", "policy.max_rounds", kind=PolicyError):
        CliRunner().invoke(app, [*arguments, "--max-rounds", "0"], catch_exceptions=False)
    help_text = CliRunner().invoke(app, [*arguments, "--help"], catch_exceptions=False).stdout
    assert "--max-rounds" in help_text


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("rounds", "code"), [(2, ReturnCode.OK), (3, refusals.POLICY)])
def test_a_job_that_it_does_not_take_gets_no_answer(tmp_path: Path, rounds: int, code: str) -> None:
    job = small_job(federation={"rounds": rounds})
    site = SiteAtWork(tmp_path / "site", SITE, job=job, site_filters=(PrototypeFilter(),))
    assert site.answer().get_return_code() == code
    free = SiteAtWork(tmp_path / "free", SITE.replace(", max_rounds: 2", ""), job=job)
    assert free.answer().get_return_code() == ReturnCode.OK


@pytest.mark.usefixtures("installed")
def test_what_became_stricter_counts_before_a_reply_leaves(tmp_path: Path) -> None:
    job = small_job(federation={"rounds": 3})
    site = SiteAtWork(tmp_path / "site", SITE.replace("max_rounds: 2", "max_rounds: 3"), job=job)
    assert site.answer().get_return_code() == ReturnCode.OK
    site.site_file.write_text(SITE)
    assert site.answer().get_return_code() == refusals.POLICY


def test_without_its_package_the_policy_is_not_valid(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    with raises("config.unknown-key", "policy.max_rounds"):
        load_site(path)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("broken", "registry.does-not-load"),
        ("misnamed", "registry.wrong-kind"),
        ("unfinished", "registry.wrong-kind"),
    ],
)
def test_a_key_that_is_no_good_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    install(tmp_path / "packages", monkeypatch, "max_rounds", name)
    with raises(code, name):
        validated(SitePolicy, {name: 1}, "the test")
    validated(SitePolicy, {"max_rounds": 1}, "the test")


def test_no_package_can_replace_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "packages", monkeypatch, "training")
    assert validated(SitePolicy, {"training": None}, "the test").training is None
    with raises("registry.wrong-kind", "training"):
        keys(SitePolicy)


def test_a_check_that_fails_lets_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "packages", monkeypatch, "crashing")
    site = SiteAtWork(tmp_path / "site", SITE.replace("max_rounds", "crashing"))
    assert site.answer().get_return_code() != ReturnCode.OK
