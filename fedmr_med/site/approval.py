"""What a site was asked to do, in plain words, and what a person there has decided about it.

Requests and decisions are lines of one journal in the site's workspace, ``approvals.jsonl``. The settings count, not
the name of a job: two jobs with equal settings ask for the same thing.
"""

import calendar
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig, TrainConfig
from fedmr_med.errors import ConfigError
from fedmr_med.files import journal
from fedmr_med.methods.plan import plan
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import differences, printable, validated
from fedmr_med.wire.kinds import HEAD

APPROVALS_FILE = "approvals.jsonl"
_ASKED, _APPROVED, _REFUSED, _ANSWERED, _LEFT = "asked", "approved", "refused", "answered", "left"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_DAY = 24 * 60 * 60
_OLD_ID = 12  # characters of an id before it was a whole hash
_SECURE = {
    "none": "The server sees each site's model and statistics (federation.secure: none).",
    "statistics": "The server sees each site's model, and statistics as totals only (federation.secure: statistics).",
    "all": "The server sees models and statistics as totals over the sites only (federation.secure: all).",
}
_METRICS = {"none": "no metrics", "scalar": "scalar metrics", "per_class": "metrics per class"}
SHOWN = 12
"""Characters of an id of settings that people are shown; the beginning of an id is enough to decide."""


class Verdict(Enum):
    """What holds for a request."""

    APPROVED = "approved"
    REFUSED = "refused"
    OPEN = "waits for a decision"


@dataclass(frozen=True)
class Request:
    """What was asked: one chain with its settings.

    Attributes:
        time: when it was asked first.
        name, chain, settings: of the job; ``settings`` is their id.
        words: what it asks, in plain sentences.
        state: what a person decided.
        answered: whether the site has answered it.
        changed: what differs from the settings approved last before; None if there are none.
    """

    time: str
    name: str
    chain: str
    settings: str
    words: list[str]
    state: Verdict
    answered: bool
    changed: list[str] | None

    @property
    def status(self) -> str:
        """What holds for it, in words."""
        waited = self.state is Verdict.OPEN and self.answered
        return "answered without a decision, as the policy says" if waited else self.state.value


@dataclass(frozen=True)
class JobStatus:
    """What the book of a site says of a job at one moment.

    Attributes:
        verdict: whether the policy lets it start, given what was decided so far.
        asked, answered: whether the job was written down as such.
        answered_before: how many other jobs got their first answer in the 24 hours before it gets or got its own.
        left: whether a person said that the site leaves the job's chain.
    """

    verdict: Verdict
    asked: bool
    answered: bool
    answered_before: int
    left: bool = False


class ApprovalBook:
    """The requests and decisions of one site, in the journal ``path``."""

    def __init__(self, path: Path):
        self.path = path

    def asked(self, job: JobConfig, *, job_id: str, chain: str) -> None:
        """Write down a request; to be done once per job."""
        about = {"job": job_id, "chain": chain, "settings": settings_id(job), "name": job.name}
        # A later version may know other settings; what was asked stays readable as it was.
        self._write(_ASKED, about | {"words": in_words(job), "content": _content(job)})

    def answered(self, job: JobConfig, *, job_id: str, chain: str) -> None:
        """Write down that a reply with content is about to leave; to be done once per job."""
        self._write(_ANSWERED, {"job": job_id, "chain": chain, "settings": settings_id(job)})

    def status(self, policy: SitePolicy, job: JobConfig, *, job_id: str, chain: str) -> JobStatus:
        """Return what the book says of a job, in one reading.

        Raises:
            PolicyError: the journal was changed by hand; it approves nothing then.
        """
        lines = self._lines()
        decision = _decision(lines, settings_id(job), chain if policy.approve == "each" else None)
        if decision is Verdict.OPEN and policy.approve == "always" and not policy.asks_about_weights(job.model.weights):
            decision = Verdict.APPROVED
        asked = any(line["event"] == _ASKED and line["job"] == job_id for line in lines)
        first: dict[str, int] = {}
        for line in lines:
            if line["event"] == _ANSWERED:
                first.setdefault(line["job"], _seconds(line["time"]))
        jobs = list(first)
        earlier = jobs[: jobs.index(job_id)] if job_id in first else jobs
        day = first.get(job_id, time.time()) - _DAY
        left = any(line["event"] == _LEFT and line["chain"] == chain for line in lines)
        return JobStatus(decision, asked, job_id in first, sum(day <= first[other] for other in earlier), left)

    def decide(self, which: str, *, approved: bool, by: str) -> Request:
        """Write down a person's decision.

        Args:
            which: the beginning of the settings' id, of the chain's or of the job's.
            by: who decides.

        Raises:
            ConfigError: no request fits, or several do.
        """
        key = _key(self._asked_line(which))
        last = next(request for request in self.requests() if (request.settings, request.chain) == key)
        event = _APPROVED if approved else _REFUSED
        self._write(event, {"settings": last.settings, "chain": last.chain, "by": by})
        return last

    def leave(self, chain: str, *, by: str) -> None:
        """Write down that the site leaves a chain, by the word of a person. There is no way back but another chain.

        Raises:
            ConfigError: nothing was asked here for the chain.
        """
        asked = [line for line in self._lines() if line["event"] == _ASKED and line["chain"] == chain]
        if not asked:
            raise ConfigError(
                f"{chain!r} is not a chain that was asked here; `fedmr-med site jobs` lists them.",
                code="approval.unknown-job",
            )
        if chain not in self.left():
            self._write(_LEFT, {"settings": asked[-1]["settings"], "chain": chain, "by": by})

    def left(self) -> dict[str, dict[str, Any]]:
        """Return the chains that the site left: when, and by whose word."""
        lines = (line for line in self._lines() if line["event"] == _LEFT)
        return {line["chain"]: {"time": line["time"], "by": line["by"]} for line in lines}

    def job(self, which: str) -> JobConfig:
        """Return the settings that were asked for; ``which`` is as for :meth:`decide`.

        Raises:
            ConfigError: no request fits, or several do, or it has settings that this version does not know.
        """
        line = self._asked_line(which)
        return validated(JobConfig, line["content"] | {"name": line["name"]}, f"the request {which}")

    def _asked_line(self, which: str) -> dict[str, Any]:
        """Return the line of the last request that fits."""
        fitting = [line for line in self._lines() if line["event"] == _ASKED and _fits(line, which)]
        if not fitting:
            raise ConfigError(
                f"{which!r} is not a job that was asked here; `fedmr-med site jobs` lists them.",
                code="approval.unknown-job",
            )
        if len({line["settings"] for line in fitting}) > 1:
            raise ConfigError(f"{which!r} fits more than one job; give more of its id.", code="approval.ambiguous")
        return fitting[-1]

    def requests(self) -> list[Request]:
        """Return what was asked, first to last, one entry per chain and settings."""
        lines = self._lines()
        found: dict[tuple[str, str], Request] = {}
        contents: dict[tuple[str, str], dict[str, Any]] = {}
        approved: dict[str, Any] | None = None
        answered = {_key(line) for line in lines if line["event"] == _ANSWERED}
        for line in lines:
            key = _key(line)
            if line["event"] == _ASKED and key not in found:
                job = _job_of(line)
                contents[key] = line["content"] if job is None else _content(job)
                changed = None if approved is None else differences(approved, contents[key])
                state = _decision(lines, *key)
                about = line["time"], line["name"], key[1], key[0], line["words"]
                found[key] = Request(*about, state, key in answered, changed)
            elif line["event"] == _APPROVED and key in found:
                approved = contents[key]
        return list(found.values())

    def _lines(self) -> tuple[dict[str, Any], ...]:
        return _with_new_ids(journal.trusted(self.path, "it approves nothing any more"))

    def _write(self, event: str, about: dict[str, Any]) -> None:
        now = time.strftime(_TIME, time.gmtime())
        journal.append(self.path, {"time": now, "event": event, **about})


def settings_id(job: JobConfig) -> str:
    """Return the hash of everything a job asks; its name and chain do not count."""
    return job.hash_of(_content(job))


def amount_in_words(train: TrainConfig) -> str:
    """Say how much a site trains in a round."""
    if train.updates:
        return f"{train.updates} steps of {train.batch_size} images"
    return f"{train.epochs} passes over the training images, {train.batch_size} at a time"


def in_words(job: JobConfig) -> list[str]:
    """Say in plain sentences what a job asks of a site."""
    task, train, federation = job.task, job.train, job.federation
    options = ", ".join(f"{name} {value}" for name, value in job.method.options.items())
    asked = Counter(f"{step.kind} with the closed-form head" if step.of_head else step.kind for step in plan(job))
    words = [
        f"A survey of images of {', '.join(task.class_names)} ({task.dataset}), without a model."
        if job.survey
        else f"{job.model.name} with {job.method.name}{f' ({options})' if options else ''}, to tell apart "
        f"{', '.join(task.class_names)} ({task.dataset}), {federation.rounds} round{'s' * (federation.rounds != 1)}.",
        *([] if job.survey else [_weights_in_words(job)]),
        f"Asks for {', '.join(f'{kind} ({count}x)' for kind, count in asked.items())}.",
        f"Each round: {amount_in_words(train)}, {train.optimizer} with learning rate {train.lr}, loss {job.loss.name}."
        if federation.rounds
        else "Nothing is trained.",
        f"A round counts with at least {federation.min_sites} sites.",
        _SECURE[federation.secure],
        _sharing_in_words(job, head=HEAD in asked),
    ]
    if federation.private is not None or train.private is not None:
        parts = (("statistics", federation.private), ("training", train.private))
        words.append(f"Adds noise to {' and '.join(name for name, noise in parts if noise is not None)}.")
    if job.head.keep and HEAD in asked:
        words.append(
            "The server keeps the total of these statistics, and each site its part, so that a site can leave."
            if federation.sums_statistics
            else "The server keeps each site's statistics for the head, so that a site can leave, or a class join."
        )
    if job.head.extends is not None:
        words.append(
            f"Asks {job.head.extends.site} alone for statistics of a head, and takes those of the others from the "
            f"chain {job.head.extends.chain}."
        )
    if federation.statistics:
        words.append(f"Asks for further statistics: {', '.join(federation.statistics)}.")
    return [printable(line) for line in words]


def _sharing_in_words(job: JobConfig, *, head: bool) -> str:
    """Say the most that a job asks a site to share."""
    asked = job.policy
    shared = asked.share_prototypes
    which = "every class" if shared is True else ", ".join(shared or ())
    least = f"with at least {asked.min_class_count} images"
    parts = [f"prototypes of {which} {least}" if which else "no prototypes"]
    if head and which:
        parts.append("means, counts and scatter of the features of the same classes for a closed-form head")
    parts.append(_METRICS[asked.share_metrics])
    parts += ["a survey of its images (share_survey)"] if job.survey else []
    if job.task.subgroups:
        parts.append(f"numbers and scores by {', '.join(job.task.subgroups)} (share_subgroups)")
    parts += ["local models"] if asked.allow_submit_model else []
    return f"Asks at most for {', '.join(parts)}; the site's own policy can only give less."


def _weights_in_words(job: JobConfig) -> str:
    """Say which weights a job starts from."""
    if job.model.weights is not None:
        return (
            f"Starts from weights that the job brings, SHA-256 {job.model.weights}. Who chooses weights can make them "
            "reveal single images."
        )
    pretrained = str(job.model.options.get("pretrained", "none"))
    drawn = f"Starts from the weights that its seed {job.seed} draws"
    return f"{drawn}." if pretrained == "none" else f"{drawn}, and the pretrained ones of {pretrained}."


def _decision(lines: Iterable[Mapping[str, Any]], settings: str, chain: str | None) -> Verdict:
    """Return the last decision about settings; of one chain only, if it is named. A refusal counts for all."""
    decision = Verdict.OPEN
    for line in (line for line in lines if line["settings"] == settings):
        if line["event"] == _REFUSED or (line["event"] == _APPROVED and chain in (None, line["chain"])):
            decision = Verdict(line["event"])
    return decision


def _content(job: JobConfig) -> dict[str, Any]:
    # Who leaves asks nothing of the others, so nobody there has to decide anew.
    return job.model_dump(mode="json", exclude={"name": True, "chain": True, "demo": True, "federation": {"without"}})


def _seconds(moment: str) -> int:
    return calendar.timegm(time.strptime(moment, _TIME))


def _key(line: Mapping[str, Any]) -> tuple[str, str]:
    return str(line["settings"]), str(line["chain"])


def _fits(line: Mapping[str, Any], which: str) -> bool:
    return any(str(line[key]).startswith(which) for key in ("settings", "chain", "job"))


def _job_of(line: Mapping[str, Any]) -> JobConfig | None:
    """Return the job that a request of any version asked for; None if it has settings that are not known now."""
    try:
        return validated(JobConfig, line["content"] | {"name": line["name"]}, "a request")
    except ConfigError:
        return None


def _with_new_ids(lines: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return lines of all versions with the ids of this one.

    Ids were the beginning of a hash over all defaults. Such a line keeps its meaning by the content that was asked; one
    whose id stands for several contents, or for settings that are not known now, decides nothing.
    """
    new: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line["event"] == _ASKED and len(line["settings"]) == _OLD_ID:
            job = _job_of(line)
            new[line["settings"]].add(line["settings"] if job is None else settings_id(job))
    ids = {old: min(found) for old, found in new.items() if len(found) == 1}
    return tuple(line | {"settings": ids.get(line["settings"], line["settings"])} for line in lines)
