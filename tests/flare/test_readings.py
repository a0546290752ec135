"""A site reads its settings, the job and its people's decisions twice: before the work and before sending."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedmr_med.files import write_text
from fedmr_med.flare.audit import AuditLog
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.flare.filter import PrototypeFilter
from fedmr_med.flare.guard import PolicyGuard
from fedmr_med.privacy import refusals
from fedmr_med.schema import dump_yaml
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook
from fedmr_med.wire import codec
from tests.helpers import containers as messages
from tests.helpers.contexts import JOB_ID, site_context
from tests.helpers.federation import demo_site
from tests.helpers.readings import readings
from tests.helpers.site_at_work import SHARES_ALL, SiteAtWork, TalkativeExecutor
from tests.helpers.small import initial_state, small_job, task_for

SITE_FILE = """
data: {source: demo, center: 5}
policy: {share_prototypes: true, share_metrics: per_class, min_cell_count: 1, approve: each,
         training: {min_sites: 1, min_updates: 1, max_jobs_per_day: 5}}
"""
LAYERS = {"site_filters": (PrototypeFilter(),), "components": (PolicyGuard(), AuditLog())}


def approved(folder: Path) -> SiteAtWork:
    """Return a site with every layer, whose people have approved the job."""
    site = SiteAtWork(folder, SITE_FILE, FedMRExecutor(), **LAYERS)
    assert site.answer().get_return_code() != ReturnCode.OK
    ApprovalBook(folder / APPROVALS_FILE).decide("", approved=True, by="steward")
    return site


def of_settings(counted: Counter[Path]) -> dict[str, int]:
    """Return how often files with settings or decisions were read, by file name."""
    names = ("site.yaml", "fedmr.yaml", APPROVALS_FILE)
    return {name: sum(count for path, count in counted.items() if path.name == name) for name in names}


@pytest.mark.parametrize("task", ["train", "validate", "head"])
def test_a_task_at_a_provisioned_site_takes_two_readings(tmp_path: Path, task: str) -> None:
    site = approved(tmp_path)
    for _ in ("opens its data", "has it open"):
        with readings() as counted:
            assert site.answer(task).get_return_code() == ReturnCode.OK
        assert of_settings(counted) == {"site.yaml": 2, "fedmr.yaml": 2, APPROVALS_FILE: 2}


def test_a_task_that_is_refused_at_once_takes_one_reading(tmp_path: Path) -> None:
    site = approved(tmp_path)
    ApprovalBook(tmp_path / APPROVALS_FILE).decide("", approved=False, by="steward")
    with readings() as counted:
        assert site.answer().get_return_code() != ReturnCode.OK
    assert of_settings(counted) == {"site.yaml": 1, "fedmr.yaml": 1, APPROVALS_FILE: 1}


def test_a_simulated_site_reads_its_own_settings_only(tmp_path: Path) -> None:
    job, sites = small_job(), ("bcn", "msk", "rosendahl", "vienna-dias")
    shareable = messages.encode_task(task_for(initial_state(job), job))
    for site in sites:
        root = tmp_path / site
        config = root / JOB_ID / f"app_{site}" / "config"
        write_text(config / "fedmr.yaml", dump_yaml(job))
        for other in sites:
            write_text(config / "sites" / other / "site.yaml", demo_site(other))
        fl_ctx = site_context(root, site, simulated=True)
        with readings() as counted:
            assert FedMRExecutor().execute("validate", shareable, fl_ctx, Signal()).get_return_code() == ReturnCode.OK
        read = {path: count for path, count in counted.items() if path.name in ("site.yaml", "fedmr.yaml")}
        assert read == {config / "sites" / site / "site.yaml": 2, config / "fedmr.yaml": 2}


class Steward(FLComponent):
    """Acts when the site has trained and has not sent anything yet: when it tracks its figures."""

    def __init__(self, act: Callable[[], None]):
        super().__init__()
        self.act = act

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == ANALYTIC_EVENT_TYPE:
            self.act()


def test_whoever_takes_an_approval_back_while_the_site_computes_is_obeyed(tmp_path: Path) -> None:
    site = approved(tmp_path)
    book = ApprovalBook(tmp_path / APPROVALS_FILE)
    site.engine.handlers.append(Steward(lambda: book.decide("", approved=False, by="steward")))
    assert site.answer().get_return_code() == refusals.NOT_APPROVED


def test_whoever_makes_the_policy_stricter_while_the_site_computes_is_obeyed(tmp_path: Path) -> None:
    site = approved(tmp_path)
    stricter = SITE_FILE.replace("share_prototypes: true", "share_prototypes: false")
    site.engine.handlers.append(Steward(lambda: write_text(site.site_file, stricter)))
    reply = site.answer()
    assert reply.get_return_code() == ReturnCode.OK
    assert codec.PROTOTYPES not in from_shareable(reply).data


@pytest.mark.parametrize("layer", ["site_filters", "components"])
def test_an_executor_of_the_jobs_own_is_held_to_what_holds_after_its_work(tmp_path: Path, layer: str) -> None:
    class Slow(TalkativeExecutor):
        def execute(self, *arguments: Any) -> Shareable:
            write_text(site.site_file, SHARES_ALL.replace("policy: {", "policy: {approve: each, "))
            return super().execute(*arguments)

    site = SiteAtWork(tmp_path, SHARES_ALL, Slow(), **{layer: LAYERS[layer]})
    assert site.answer().get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
