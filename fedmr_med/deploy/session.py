"""A person's connection to the federation's server, by FLARE's own API."""

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmr_med.deploy.kit import read_json
from fedmr_med.errors import ConfigError, DeployError
from fedmr_med.jobs.folder import ALL_SITES

# Where a follow-up names its chain, in what FLARE lists of a job.
CHAIN_PROPERTY = "fedmr_chain"


class ServerLostError(DeployError):
    """The server does not answer; it may come back."""


@dataclass(frozen=True)
class JobState:
    """Where a job stands.

    Attributes:
        status: FLARE's word for it, ``SUBMITTED``, ``RUNNING``, ``FINISHED:COMPLETED``, ...
        alive: whether it waits to run or the server has a process for it. FLARE calls a job RUNNING for ever if
            the server was killed under it.
        restarted: whether the server has been started since the job was.
        detail: what FLARE says about sending it to each hospital.
    """

    status: str
    alive: bool
    restarted: bool = False
    detail: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobInfo:
    """A job as the server lists it: its id and its chain's, what FLARE keeps of it, and how many sites it waits for.

    It names no sites if it is for all that are connected.
    """

    job: str
    chain: str
    name: str
    owner: str
    submitted: str
    status: str
    sites: tuple[str, ...]
    min_sites: int

    @classmethod
    def of(cls, meta: dict[str, Any]) -> "JobInfo":
        """Read what FLARE says of a job."""
        job = str(meta.get("job_id"))
        named = dict.fromkeys(site for sites in dict(meta.get("deploy_map") or {}).values() for site in sites)
        return cls(
            job=job,
            chain=str((meta.get("custom_props") or {}).get(CHAIN_PROPERTY) or job),
            name=str(meta.get("name")),
            owner=str(meta.get("submitter_name")),
            submitted=str(meta.get("submit_time_iso"))[:19],
            status=str(meta.get("status")),
            sites=tuple(site for site in named if site not in ("server", ALL_SITES)),
            min_sites=int(meta.get("min_clients") or 1),
        )

    @property
    def ended(self) -> bool:
        """Whether FLARE calls it finished, for better or worse."""
        return has_ended(self.status)


def has_ended(status: str) -> bool:
    """Whether FLARE's word for a job means its end."""
    return status.startswith(("FINISHED", "FAILED", "ABANDONED"))


class Session:
    """A connection that is made on first use and again after it was lost.

    Args:
        kit: startup kit of a lead or administrator.

    Raises:
        ConfigError: the folder is not such a kit.
    """

    def __init__(self, kit: Path):
        admin = read_json(kit / "startup" / "fed_admin.json").get("admin")
        if not isinstance(admin, dict) or not {"username", "host", "port"} <= admin.keys():
            raise ConfigError(f"{kit / 'startup' / 'fed_admin.json'} is not a person's kit.", code="kit.form")
        self.kit = kit.resolve()
        self.user = str(admin["username"])
        self.address = f"{admin['host']}:{admin['port']}"
        self._connection: Any = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, folder: Path) -> str:
        """Sign a job folder, in place, and submit it; return the id FLARE gives it."""
        with self._talking() as connection:
            return str(connection.submit_job(str(folder.resolve())))

    def jobs(self) -> tuple[JobInfo, ...]:
        """Return all jobs the server knows, first to last."""
        with self._talking() as connection:
            return tuple(JobInfo.of(meta) for meta in connection.list_jobs(detailed=True))

    def state(self, job: str) -> JobState:
        """Return where a job stands."""
        with self._talking() as connection:
            meta = connection.get_job_meta(job)
            status = str(meta.get("status"))
            system = connection.get_system_info()
        running = {info.job_id for info in system.job_info}
        restarted = _is_later(system.server_info.start_time, meta.get("start_time"))
        waiting = status in ("SUBMITTED", "APPROVED", "DISPATCHED")
        detail = tuple(str(line) for line in meta.get("job_deploy_detail") or ())
        return JobState(status=status, alive=waiting or job in running, restarted=restarted, detail=detail)

    def progress(self, job: str) -> dict[str, Any] | None:
        """Return what the job's controller says about its rounds; None while it has not started or has ended."""
        from nvflare.fuel.flare_api.api_spec import InternalError, JobNotFound, JobNotRunning

        with self._talking() as connection:
            try:
                stats = connection.show_stats(job, "server")
            except (JobNotRunning, JobNotFound, InternalError):
                return None
        server = stats.get("server") if isinstance(stats, dict) else None
        progress = server.get("progress") if isinstance(server, dict) else None
        return progress if isinstance(progress, dict) else None

    def since(self) -> datetime:
        """Return when the server was started."""
        with self._talking() as connection:
            return datetime.fromtimestamp(float(connection.get_system_info().server_info.start_time), UTC)

    def server_log(self, job: str) -> str:
        """Return what the server's part of a job has logged; empty if FLARE has it no more, or keeps it from us."""
        try:
            with self._talking() as connection:
                return str(connection.get_job_logs(job).get("logs", {}).get("server") or "")
        except ServerLostError:
            raise
        except DeployError:
            return ""

    def hospitals(self) -> tuple[str, ...]:
        """Return the hospitals that are connected to the server."""
        with self._talking() as connection:
            return tuple(sorted(info.name for info in connection.get_system_info().client_info))

    def abort(self, job: str) -> None:
        """End a job."""
        with self._talking() as connection:
            connection.abort_job(job)

    def download(self, job: str, folder: Path) -> Path:
        """Fetch the results of a job that has ended; return the folder they are in."""
        with self._talking() as connection:
            return Path(connection.download_job_result(job, str(folder)))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            # The server may be gone already; there is nothing to keep.
            with contextlib.suppress(Exception):
                connection.close()

    @contextlib.contextmanager
    def _talking(self) -> Iterator[Any]:
        """Give FLARE's session, and turn its errors into the toolkit's."""
        from nvflare.apis.fl_exception import FLCommunicationError
        from nvflare.fuel.flare_api.api_spec import (
            AuthenticationError,
            AuthorizationError,
            InvalidJobDefinition,
            JobNotFound,
            NoConnection,
            NoReply,
            SessionClosed,
        )

        # A server that dies during the login gives the first of these.
        lost = (FLCommunicationError, NoConnection, NoReply, SessionClosed, OSError)
        try:
            # FLARE prints on stdout, which belongs to the command's own result.
            with contextlib.redirect_stdout(sys.stderr):
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
        except lost as e:
            self.close()
            raise ServerLostError(
                f"The server {self.address} does not answer ({e}). Is it running, is the port open?",
                code="server.unreachable",
            ) from e
        except (AuthenticationError, AuthorizationError) as e:
            self.close()
            raise DeployError(f"The server {self.address} refuses {self.user}: {e}.", code="server.refuses-user") from e
        except (InvalidJobDefinition, JobNotFound) as e:
            raise DeployError(f"The server {self.address} says: {e}.", code="server.error") from e

    def _connect(self) -> Any:
        from nvflare.fuel.flare_api.api_spec import InternalError, NoConnection
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        # FLARE takes its whole timeout to notice that nobody listens.
        host, _, port = self.address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10.0).close()
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)
        timeouts = {"timeout": 10.0, "command_timeout": 20.0}
        try:
            return new_secure_session(self.user, str(self.kit), auto_login_max_tries=1, **timeouts)
        except InternalError as e:  # a server that died after it took the connection
            raise NoConnection(str(e)) from e


def _is_later(server_start: Any, job_start: Any) -> bool:
    """Compare FLARE's two ways to tell a time: seconds for the server, text for a job, empty until it starts."""
    try:
        return float(server_start) > datetime.fromisoformat(str(job_start)).timestamp()
    except (TypeError, ValueError):
        return False
