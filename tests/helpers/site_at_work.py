"""A site answering tasks through FLARE's real client runner, without a network."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment
from nvflare.private.fed.client.client_runner import ClientRunner, ClientRunnerConfig, TaskRouter
from nvflare.private.privacy_manager import Scope

from fedmr_med.config import JobConfig
from fedmr_med.files import write_text
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.schema import dump_yaml
from fedmr_med.server.state import GlobalState
from fedmr_med.wire import codec
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import EXCHANGES
from fedmr_med.wire.messages import SiteReply
from tests.helpers import containers as wire
from tests.helpers.contexts import Engine
from tests.helpers.small import initial_state, lenient, small_hospital, small_job, task_for

SITE, JOB = "vienna-dias", "chain"
"""The chain of :func:`task_for` is that of the job."""

SHARES_NOTHING = """
data: {source: demo, center: 5}
policy: {share_prototypes: false, share_metrics: none, training: null}
"""
SHARES_ALL = """
data: {source: demo, center: 5}
policy: {share_prototypes: true, min_class_count: 1, min_cell_count: 1, share_metrics: per_class, training: null}
"""


class SiteAtWork:
    """A provisioned site: site filters, then job filters, then the events, in FLARE's own order."""

    def __init__(
        self,
        folder: Path,
        site_file: str | None,
        executor: Executor | None = None,
        *,
        site_filters: tuple[Filter, ...] = (),
        job_filters: tuple[Filter, ...] = (),
        components: tuple[FLComponent, ...] = (),
        job: JobConfig | None = None,
    ):
        self.job = job or small_job()
        for name in ("startup", "local"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.site_file = folder / "local" / "site.yaml"
        if site_file is not None:
            write_text(self.site_file, site_file)
        write_text(folder / JOB / f"app_{SITE}" / "config" / "fedmr.yaml", dump_yaml(self.job))
        self.engine = Engine(Workspace(str(folder), SITE), SITE, JOB)
        self.scope = Scope()
        for item in site_filters:
            self.scope.add_task_result_filter(item, FilterKey.OUT)
        router = TaskRouter()
        router.add_executor([*EXCHANGES, "submit_model"], executor or FedMRExecutor())
        filters = {f"{task}{FilterKey.DELIMITER}out": list(job_filters) for task in router.task_table}
        config = ClientRunnerConfig(router, {}, filters)
        self.runner = ClientRunner({}, config, JOB, self.engine)
        self.engine.handlers = [*components, self.runner]

    def context(self) -> FLContext:
        """Return a context as FLARE makes it for one task."""
        fl_ctx = self.engine.new_context()
        server = FLContext()
        server.set_prop(ReservedKey.RUN_NUM, JOB, private=False)
        fl_ctx.set_peer_context(server)
        fl_ctx.set_prop(FLContextKey.SCOPE_OBJECT, self.scope, private=True, sticky=False)
        return fl_ctx

    def answer(self, task: str = "train", data: Shareable | None = None) -> Shareable:
        """Return the reply to a task as it goes on the wire."""
        fl_ctx = self.context()
        assignment = TaskAssignment(task, "task-1", data or self.task())
        reply = self.runner._process_task(assignment, fl_ctx)
        self.engine.fire_event(EventType.BEFORE_SEND_TASK_RESULT, fl_ctx)
        return reply

    def state(self) -> GlobalState:
        return initial_state(self.job)

    def task(self) -> Shareable:
        """Return the first round's task."""
        task = wire.encode_task(task_for(self.state(), self.job))
        task.add_cookie("contribution_round", 0)
        return task


@cache
def full_reply() -> SiteReply:
    """Return a real reply that shares everything; trained once."""
    job = small_job()
    policy = lenient(share_prototypes=True, min_class_count=1, share_metrics="per_class")
    with TemporaryDirectory() as folder:
        return small_hospital(SITE, job, Path(folder), policy).train(task_for(initial_state(job), job))


@cache
def full_statistics() -> SiteReply:
    """Return real statistics for a head of every class; made once."""
    job = small_job()
    policy = lenient(share_prototypes=True, min_class_count=1)
    with TemporaryDirectory() as folder:
        return small_hospital(SITE, job, Path(folder), policy).head_statistics(task_for(initial_state(job), job))


class TalkativeExecutor(Executor):
    """An executor that ignores the policy: it shares every prototype and every figure."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        answers = {
            "train": lambda: wire.encode_reply(full_reply()),
            "validate": lambda: wire.encode_validation(full_reply().scores),
            "head": lambda: wire.encode_statistics(full_statistics()),
            "submit_model": lambda: wire.to_shareable(Message({codec.MODEL: full_reply().model}), "submit_model"),
        }
        return answers[task_name]()
