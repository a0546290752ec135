"""Checks before anything starts: one line each, passed or what to fix."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import psutil

from fedmr_med.config import JobConfig
from fedmr_med.deploy import kit as kits
from fedmr_med.deploy import lint
from fedmr_med.deploy.client_process import rival, running_clients, stale_client
from fedmr_med.deploy.connection import server_address, try_server
from fedmr_med.deploy.manifest import certificate, verify
from fedmr_med.deploy.renewal import SOON
from fedmr_med.errors import ConfigError, FedMRError, PolicyError
from fedmr_med.privacy.explain import explain
from fedmr_med.sites import SITE_FILE, SiteConfig, load_site

_GIGABYTE = 10**9
_LOW_DISK, _LOW_MEMORY = 5 * _GIGABYTE, 2 * _GIGABYTE
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
        job: the job to prepare for: its classes and image size, its weights file.
        data: whether to read every image.
        connection: whether to connect to the server.
    """
    kind = kits.kind_of(kit)
    if kind == "person":
        yield Check("kit", "fix", f"{kit} is a person's; name the kit of a hospital, a relay or the server with --kit")
        return
    yield from _guarded("kit", lambda: _kit(kit))
    yield from _lint(kit, kind)
    yield from _guarded("certificate", lambda: _certificates(kit))
    yield from _guarded("clock", lambda: _clock(kit, None))
    yield _machine_disk(kit)
    yield _machine_memory()
    if kind == "server":
        yield from _guarded("weights", lambda: _weights(job))
        return
    if kind == "hospital":
        yield _machine_gpu()
        yield Check("weights", "pass", "not needed here: the server sends every weight")
        yield from _guarded("policy", lambda: _policy(kit, job))
    yield _active(kit)
    if data and kind == "hospital":
        yield from _guarded("data", lambda: _data(load_site(kit / "local" / SITE_FILE), job))
    if connection:
        yield from _guarded("connection", lambda: _connection(kit))


def _guarded(name: str, check: Callable[[], list[Check]]) -> list[Check]:
    """Turn an error into a line that says what to fix."""
    try:
        return check()
    except FedMRError as e:
        return [Check(name, "fix", str(e))]


def _kit(kit: Path) -> list[Check]:
    state = verify(kit)
    problems = [
        *(f"{name} was changed" for name in state.changed),
        *(f"{name} is missing" for name in state.missing),
        *(f"{name} is not part of the kit" for name in state.unexpected),
    ]
    if problems:
        advice = "Ask the coordinator for a new kit; if the change was yours, run `fedmr-med site seal`."
        return [Check("kit", "fix", f"{'; '.join(problems)}. {advice}")]
    if state.sealed:
        return [Check("kit", "pass", f"as provisioned; changed and sealed by this site: {', '.join(state.sealed)}")]
    return [Check("kit", "pass", "as provisioned, signature valid")]


def _linters(kit: Path, kind: kits.Kind) -> dict[Path, Callable[[Any], list[str]]]:
    """Return what looks at each file of a kit."""
    local, startup, server = kit / "local", kit / "startup" / kits.STARTUP[kind], kind == "server"
    if kind == "relay":
        return {startup: lint.lint_relay, local / kits.LISTENER: lint.lint_listener}
    linters: dict[Path, Callable[[Any], list[str]]] = {
        local / kits.AUTHORIZATION: lint.lint_authorization,
        local / kits.RESOURCES: lambda content: lint.lint_resources(content, server=server),
        startup: lambda content: lint.lint_startup(content, server=server),
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


def _certificates(kit: Path) -> list[Check]:
    now, checks = datetime.now(UTC), []
    for name in ("client.crt", "server.crt", "rootCA.pem"):
        path = kit / "startup" / name
        if not path.is_file():
            continue
        found = certificate(path)
        until = found.not_valid_after_utc
        if until < now:
            checks.append(Check(name, "fix", f"expired on {until:%Y-%m-%d}; ask the coordinator for a new kit"))
        elif found.not_valid_before_utc > now:
            checks.append(Check(name, "fix", f"valid only from {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"))
        elif until - now < SOON:
            checks.append(Check(name, "note", f"expires on {until:%Y-%m-%d}: ask the coordinator for a renewed kit"))
        else:
            checks.append(Check(name, "pass", f"valid until {until:%Y-%m-%d}"))
    return checks or [Check("certificate", "fix", f"{kit / 'startup'} holds no certificate")]


def _clock(kit: Path, server_time: datetime | None) -> list[Check]:
    now = datetime.now(UTC)
    made = certificate(kit / "startup" / "rootCA.pem").not_valid_before_utc
    if now < made - _CLOCK_TOLERANCE:
        return [Check("clock", "fix", f"this machine says {now:%Y-%m-%d %H:%M} UTC, before the kit was made")]
    if server_time and abs(now - server_time) > _CLOCK_TOLERANCE:
        apart = abs(now - server_time)
        return [Check("clock", "fix", f"{round(apart.total_seconds())} s apart from the server's; set up NTP")]
    return [Check("clock", "pass", f"{now:%Y-%m-%d %H:%M} UTC" + (", as the server's" if server_time else ""))]


def _machine_disk(kit: Path) -> Check:
    free = shutil.disk_usage(kit).free
    advice = "" if free > _LOW_DISK else "; free some: models, caches and logs need about 5 GB"
    return Check("disk", "pass" if free > _LOW_DISK else "fix", f"{free / _GIGABYTE:.0f} GB free{advice}")


def _machine_memory() -> Check:
    free = psutil.virtual_memory().available
    advice = "" if free > _LOW_MEMORY else "; training needs about 2 GB"
    return Check("memory", "pass" if free > _LOW_MEMORY else "fix", f"{free / _GIGABYTE:.0f} GB available{advice}")


def _machine_gpu() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check("GPU", "pass", torch.cuda.get_device_name())
    return Check("GPU", "note", "none; training runs on the CPU")


def _weights(job: JobConfig) -> list[Check]:
    name = str(job.model.options.get("pretrained", "none"))
    if name == "none":
        return [Check("weights", "pass", "the job starts from random weights")]
    if not Path(name).is_file():
        return [Check("weights", "fix", f"{name} (model.options.pretrained) does not exist on this server")]
    return [Check("weights", "pass", name)]


def _policy(kit: Path, job: JobConfig) -> list[Check]:
    site = load_site(kit / "local" / SITE_FILE)
    return [Check("policy", "pass", " ".join(explain(site.policy)[1:3])), *_training(site, job)]


def _training(site: SiteConfig, job: JobConfig, images: int | None = None) -> list[Check]:
    """Say whether the job keeps to what the site demands of training; with ``images``, also in its use of them."""
    from fedmr_med.site.floors import SiteFloors

    floors = SiteFloors(site.policy, Path())
    try:
        floors.check_job(job)
        if images is not None:
            floors.check_amount(job, images)
    except PolicyError as e:
        return [Check("training", "note", f"the job {job.name} would be refused here: {e}")]
    if site.policy.training is None:
        return [Check("training", "note", "any settings of a job are taken (policy.training: null)")]
    return [Check("training", "pass", f"the job {job.name} keeps to the floors of this hospital")]


def _active(kit: Path) -> Check:
    running = running_clients(kit)
    if len(running) > 1:
        pids = ", ".join(str(process.pid) for process in running)
        return Check("client", "fix", f"{len(running)} clients run from this kit (processes {pids}); stop all but one")
    problem = rival(kit) or stale_client(kit)
    if problem:
        return Check("client", "fix", str(problem))
    if running:
        return Check("client", "pass", f"running (process {running[0].pid}) with these settings")
    return Check("client", "pass", "not running; it will start with these settings")


def _data(site: SiteConfig, job: JobConfig) -> list[Check]:
    from fedmr_med import data
    from fedmr_med.data.base import class_counts
    from fedmr_med.data.demo import effective_job

    job = effective_job(job, {"this site": site})
    loaded = data.load(site, job.task, seed=job.seed)
    counts = class_counts(loaded.train, job.task.num_classes)
    held = [f"{name} {count}" for name, count in zip(job.task.class_names, counts, strict=True) if count]
    found = f"{len(loaded.train)} training and {len(loaded.test)} test images; training: {', '.join(held)}"
    checks = [
        Check("data", "note", f"generated pictures (demo): {found}") if loaded.is_demo else Check("data", "pass", found)
    ]
    if loaded.skipped:
        first = "; ".join(loaded.skipped[:3])
        checks.append(Check("bad images", "note", f"{len(loaded.skipped)} are left out: {first}"))
    else:
        checks.append(Check("bad images", "pass", "none"))
    checks += [Check("same pictures", "note", warning) for warning in loaded.warnings]
    checks += [c for c in _training(site, job, len(loaded.train)) if c not in _training(site, job)]
    rare = policy_gaps(site, job, counts.tolist())
    if rare:
        checks.append(Check("rare classes", "note", f"prototypes of {', '.join(rare)} stay here: too few images"))
    return checks


def policy_gaps(site: SiteConfig, job: JobConfig, counts: list[int]) -> list[str]:
    """Return the classes that the site holds and would share, were there enough images of them."""
    chosen = site.policy.share_prototypes
    names = job.task.class_names if chosen is True else () if chosen is False else chosen
    return [
        name
        for name, count in zip(job.task.class_names, counts, strict=True)
        if name in names and 0 < count < site.policy.min_class_count
    ]


def _connection(kit: Path) -> list[Check]:
    answer = try_server(kit)
    address = "{}:{}".format(*server_address(kit))
    checks = [Check("connection", "pass", f"{address} answers with the certificate of {answer.name}")]
    if answer.time:
        checks += _clock(kit, answer.time)
    return checks
