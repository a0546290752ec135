"""A class that nobody had joins a finished one-shot chain: one site is asked, the others' statistics are the kept ones.

A class that a site does not have is a row of zeros in its statistics. So the kept ones, with one such row more, are
what the others would send in a job with that class, and the head is that of a chain that had it from the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedmr_med.config import ExtendsConfig, JobConfig
from fedmr_med.errors import CheckpointError, FedMRError
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.records import Withdrawal
from fedmr_med.exchange.closing import Total
from fedmr_med.exchange.head import HeadExchange
from fedmr_med.models.model_file import as_arrays, job_of, read_tensors
from fedmr_med.schema import brief, differences
from fedmr_med.server.chain import CHECKPOINT, Chain
from fedmr_med.server.kept_head import KeptHead
from fedmr_med.server.state import BIAS, WEIGHT, GlobalState
from fedmr_med.statistics.moments import COUNTS, SUMS
from fedmr_med.wire.codec import Message


@dataclass(frozen=True)
class Others:
    """What another chain keeps of its head.

    Attributes:
        messages: what its sites sent, by site, with a row of zeros for the new class.
        withdrawn: the sites that have left it.
    """

    messages: Mapping[str, Message]
    withdrawn: tuple[Withdrawal, ...]


class JoinExchange(HeadExchange):
    """The head of kept statistics and of those of the one site that joins, ``joins``."""

    def __init__(self, job: JobConfig, state: GlobalState, extends: ExtendsConfig, others: Others):
        super().__init__(job, state)
        self.joins, self._others = extends.site, others
        for site, message in others.messages.items():
            self.offer(site, message)

    @property
    def has_quorum(self) -> bool:
        """Whether the one site has answered."""
        with self._lock:
            return self.joins in self._replies

    def close(self, total: Total | None = None) -> GlobalState:
        """Return the state with the head that knows the new class.

        Raises:
            FedMRError: the site shares no statistics of it.
        """
        name = self.job.task.class_names[-1]
        if self.joins not in self._counts or not self._counts[self.joins][-1]:
            reason = self._refused.get(self.joins, f"it shares no statistics of {name}")
            raise FedMRError(
                f"{name} cannot join the head: {self.joins} has to send its statistics ({reason}).", code="extend.none"
            )
        new = super().close(total)
        history = new.history.model_copy(update={"withdrawn": self._others.withdrawn})
        if history.head is not None:
            travelled = {"bytes_up": self._replies[self.joins].bytes_up, "bytes_down": self._bytes_down}
            history = history.model_copy(update={"head": history.head.model_copy(update=travelled)})
        return replace(new, history=history)


def kept_of_others(chain: Chain, state: GlobalState, extends: ExtendsConfig) -> Others:
    """Return what the chain that is extended keeps, for a job with one class more.

    Args:
        chain: the new one; the other one is beside it, and belongs to the same person.
        state: of the new one.

    Raises:
        CheckpointError: there is no such chain, it is somebody else's, keeps nothing, or has other settings or weights.
    """
    folder = chain.beside(extends.chain)
    content = read_tensors(folder / CHECKPOINT)
    try:
        old, history = job_of(content, folder / CHECKPOINT), History.model_validate_json(content["history"])
        model, backbone = as_arrays(content["model"]), content["backbone"]
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"{folder / CHECKPOINT} is no checkpoint ({brief(e)}).", code="checkpoint.form") from e
    new, head = chain.job, history.head
    before = new.task.class_names[:-1]
    same = new.override({"task": {"class_names": list(before)}, "head": {"extends": None}})
    changed = differences(_compared(old), _compared(same))
    if changed:
        raise CheckpointError(
            f"The chain {extends.chain} has other settings than this job, beside the new class: "
            f"{brief('; '.join(changed))}.",
            code="extend.other-settings",
            key="head.extends",
        )
    if head is None or not head.kept or extends.site in history.left:
        why = f"{extends.site} has left it" if extends.site in history.left else "it keeps no statistics (head.keep)"
        raise CheckpointError(
            f"The chain {extends.chain} cannot be extended: {why}.", code="extend.nothing-kept", key="head.extends"
        )
    own = {name: array for name, array in state.model.items() if name not in (WEIGHT, BIAS)}
    equal = all(name in model and np.array_equal(array, model[name]) for name, array in own.items())
    if not equal or backbone != (None if state.backbone is None else state.backbone.digest):
        raise CheckpointError(
            f"The features of the chain {extends.chain} are of other weights than this job's.",
            code="extend.other-weights",
            key="head.extends",
        )
    messages = KeptHead.of(folder).read_all(head.kept, {extends.site})
    return Others({site: _with_row(message) for site, message in messages.items()}, history.withdrawn)


def _compared(job: JobConfig) -> dict[str, object]:
    """Return what the statistics of a job depend on: not what it asks a site to share, which names classes."""
    return {key: value for key, value in job.compared().items() if key != "policy"}


def _with_row(message: Message) -> Message:
    """Return statistics of one class more, of which there is no image."""

    def widened(name: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        if name not in (COUNTS, SUMS):
            return array
        return np.concatenate([array, np.zeros((1, *array.shape[1:]), array.dtype)])

    parts = {part: {name: widened(name, a) for name, a in arrays.items()} for part, arrays in message.parts.items()}
    return Message(parts, message.meta)
