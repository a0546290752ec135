"""Checks before anything starts: one line each, passed or what to fix."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil

from fedmr_med.config import JobConfig
from fedmr_med.deploy import kit as kits
from fedmr_med.deploy import lint
from fedmr_med.deploy.connection import try_server
from fedmr_med.deploy.health import rival, running_clients, stale_client
from fedmr_med.deploy.manifest import certificate, verify
from fedmr_med.deploy.renewal import SOON
from fedmr_med.errors import ConfigError, FedMRError, PolicyError
from fedmr_med.privacy.explain import explain, small_cells

_GIGABYTE = 10**9
_CLOCK_TOLERANCE = timedelta(minutes=2)


@dataclass(frozen=True)
class Check:
    """One line of the preflight."""

    name: str
    outcome: Literal["pass", "note", "fix"]
    message: str


def preflight(kit: Path, job: JobConfig, *, data: bool = True, connection: bool = True) -> Iterator[Check]:
    """Check the kit of a hospital, a relay or the server, and the machine it lies on.

    Args:
        kit: the startup kit.
        job: to prepare for: its classes and image size, its weights file.
        data: whether to read every image.
        connection: whether to connect to the server.
    """
    kind = kits.kind_of(kit)
    if kind == "person":
        yield Check("kit", "fix", f"{kit} is a person's; name the kit of a hospital, a relay or the server with --kit")
        return
    yield from _guarded("kit", _kit(kit))
    yield from _lint(kit, kind)
    yield from _guarded("certificate", _certificates(kit))
    yield from _guarded("clock", _clock(kit))
    yield _room("disk", "free", shutil.disk_usage(kit).free, 5, "free some: models, caches and logs need")
    yield _room("memory", "available", psutil.virtual_memory().available, 2, "training needs")
    if kind == "server":
        yield _weights(job)
        return
    if kind == "hospital":
        yield _gpu()
        yield Check("weights", "pass", "not needed here: the server sends every weight")
        yield from _guarded("policy", _policy(kit, job))
    yield _active(kit)
    if data and kind == "hospital":
        yield from _guarded("data", _data(kit, job))
    if connection:
        yield from _guarded("connection", _connection(kit))


def _guarded(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Turn an error into a line that says what to fix."""
    try:
        yield from checks
    except FedMRError as e:
        yield Check(name, "fix", str(e))


def _kit(kit: Path) -> Iterator[Check]:
    state = verify(kit)
    problems = [
        *(f"{name} was changed" for name in state.changed),
        *(f"{name} is missing" for name in state.missing),
        *(f"{name} is not part of the kit" for name in state.unexpected),
    ]
    if problems:
        advice = "Ask the coordinator for a new kit; if the change was yours, run `fedmr-med site seal`."
        yield Check("kit", "fix", f"{'; '.join(problems)}. {advice}")
    elif state.sealed:
        yield Check("kit", "pass", f"as provisioned; changed and sealed by this site: {', '.join(state.sealed)}")
    else:
        yield Check("kit", "pass", "as provisioned, signature valid")


def _linters(kit: Path, kind: kits.Kind) -> dict[Path, Callable[[dict[str, Any]], list[str]]]:
    """Return what looks at each file of a kit."""
    local, startup, server = kit / "local", kit / "startup" / kits.STARTUP[kind], kind == "server"
    if kind == "relay":
        return {startup: lint.lint_relay, local / kits.LISTENER: lint.lint_listener}
    linters: dict[Path, Callable[[dict[str, Any]], list[str]]] = {
        local / kits.AUTHORIZATION: lint.lint_authorization,
        local / kits.RESOURCES: partial(lint.lint_resources, server=server),
        startup: partial(lint.lint_startup, server=server),
    }
    if not server:
        linters[local / kits.PRIVACY] = lint.lint_privacy
    if (local / kits.RELAY_RESOURCES).exists():
        linters[local / kits.RELAY_RESOURCES] = lint.lint_relay
    return linters


def _lint(kit: Path, kind: kits.Kind) -> Iterator[Check]:
    for path, find_problems in _linters(kit, kind).items():
        # FLARE falls back to the default file, which is as locked; its `deploy prepare` leaves only that one.
        fallback = path.with_name(f"{path.name}.default")
        try:
            problems = find_problems(kits.read_json(fallback if fallback.exists() and not path.exists() else path))
        except ConfigError as e:
            problems = [str(e)]
        yield Check(path.name, "fix" if problems else "pass", "; ".join(problems) or "locked as it should be")
    problems = lint.lint_files(kit)
    yield Check(
        "files", "fix" if problems else "pass", "; ".join(problems) or "no code, no further settings, keys closed"
    )


def _certificates(kit: Path) -> Iterator[Check]:
    now = datetime.now(UTC)
    present = [
        path for name in ("client.crt", "server.crt", "rootCA.pem") if (path := kit / "startup" / name).is_file()
    ]
    for path in present:
        found = certificate(path)
        until = found.not_valid_after_utc
        if until < now:
            yield Check(path.name, "fix", f"expired on {until:%Y-%m-%d}; ask the coordinator for a new kit")
        elif found.not_valid_before_utc > now:
            yield Check(path.name, "fix", f"valid only from {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on")
        elif until - now < SOON:
            yield Check(path.name, "note", f"expires on {until:%Y-%m-%d}: ask the coordinator for a renewed kit")
        else:
            yield Check(path.name, "pass", f"valid until {until:%Y-%m-%d}")
    if not present:
        yield Check("certificate", "fix", f"{kit / 'startup'} holds no certificate")


def _clock(kit: Path, server_time: datetime | None = None) -> Iterator[Check]:
    now = datetime.now(UTC)
    made = certificate(kit / "startup" / "rootCA.pem").not_valid_before_utc
    if now < made - _CLOCK_TOLERANCE:
        yield Check("clock", "fix", f"this machine says {now:%Y-%m-%d %H:%M} UTC, before the kit was made")
    elif server_time and abs(now - server_time) > _CLOCK_TOLERANCE:
        apart = round(abs(now - server_time).total_seconds())
        yield Check("clock", "fix", f"{apart} s apart from the server's; set up NTP")
    else:
        yield Check("clock", "pass", f"{now:%Y-%m-%d %H:%M} UTC" + (", as the server's" if server_time else ""))


def _room(name: str, word: str, free: int, needed: int, advice: str) -> Check:
    """Say whether ``free`` bytes are the gigabytes that are needed."""
    enough = free > needed * _GIGABYTE
    said = f"{free / _GIGABYTE:.0f} GB {word}" + ("" if enough else f"; {advice} about {needed} GB")
    return Check(name, "pass" if enough else "fix", said)


def _gpu() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check("GPU", "pass", torch.cuda.get_device_name())
    return Check("GPU", "note", "none; training runs on the CPU")


def _weights(job: JobConfig) -> Check:
    name = str(job.model.options.get("pretrained", "none"))
    if name == "none":
        return Check("weights", "pass", "the job starts from random weights")
    if not Path(name).is_file():
        return Check("weights", "fix", f"{name} (model.options.pretrained) does not exist on this server")
    return Check("weights", "pass", name)


def _policy(kit: Path, job: JobConfig) -> Iterator[Check]:
    from fedmr_med.site.floors import SiteFloors

    policy = kits.site_settings(kit).policy
    yield Check("policy", "pass", " ".join(explain(policy)[1:3]))
    yield from (Check("scores", "note", sentence) for sentence in small_cells(policy))
    try:
        SiteFloors(policy, Path()).check_job(job)
    except PolicyError as e:
        yield _would_refuse(job, e)
        return
    if policy.training is None:
        yield Check("training", "note", "any settings of a job are taken (policy.training: null)")
    else:
        yield Check("training", "pass", f"the job {job.name} keeps to the floors of this hospital")


def _would_refuse(job: JobConfig, error: PolicyError) -> Check:
    return Check("training", "note", f"the job {job.name} would be refused here: {error}")


def _active(kit: Path) -> Check:
    running = running_clients(kit)
    if len(running) > 1:
        pids = ", ".join(str(process.pid) for process in running)
        return Check("client", "fix", f"{len(running)} clients run from this kit (processes {pids}); stop all but one")
    if problem := rival(kit) or stale_client(kit):
        return Check("client", "fix", str(problem))
    if running:
        return Check("client", "pass", f"running (process {running[0].pid}) with these settings")
    return Check("client", "pass", "not running; it will start with these settings")


def _data(kit: Path, job: JobConfig) -> Iterator[Check]:
    from fedmr_med import data
    from fedmr_med.data.base import class_counts
    from fedmr_med.data.demo import effective_job
    from fedmr_med.site.floors import SiteFloors

    site = kits.site_settings(kit)
    job = effective_job(job, {"this site": site})
    loaded = data.load(site, job.task, seed=job.seed)
    counts = dict(zip(job.task.class_names, class_counts(loaded.train, job.task.num_classes).tolist(), strict=True))
    held = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    found = f"{len(loaded.train)} training and {len(loaded.test)} test images; training: {held}"
    yield (
        Check("data", "note", f"generated pictures (demo): {found}") if loaded.is_demo else Check("data", "pass", found)
    )
    if loaded.skipped:
        yield Check("bad images", "note", f"{len(loaded.skipped)} are left out: {'; '.join(loaded.skipped[:3])}")
    else:
        yield Check("bad images", "pass", "none")
    yield from (Check("same pictures", "note", warning) for warning in loaded.warnings)
    try:
        SiteFloors(site.policy, Path()).check_amount(job, len(loaded.train))
    except PolicyError as e:
        yield _would_refuse(job, e)
    chosen = site.policy.share_prototypes
    shared = job.task.class_names if chosen is True else chosen or ()
    if rare := [name for name, count in counts.items() if name in shared and 0 < count < site.policy.min_class_count]:
        yield Check("rare classes", "note", f"prototypes of {', '.join(rare)} stay here: too few images")


def _connection(kit: Path) -> Iterator[Check]:
    answer = try_server(kit)
    yield Check("connection", "pass", f"{answer.address} answers with the certificate of {answer.name}")
    if answer.time:
        yield from _clock(kit, answer.time)
