"""What is checked when a server or site starts, before it connects to anybody.

FLARE makes the components of ``resources.json`` first of all, in the kit's folder, for the long-lived process as well
as for those of jobs. It turns exceptions into log lines, so what must not start ends the process itself.

A hospital's process runs without :mod:`fedmr_med.lab`: no attack, benchmark or study can be loaded into it.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

from nvflare.apis.fl_component import FLComponent

from fedmr_med.deploy.kit import SITE_EXAMPLE, read_json
from fedmr_med.errors import FedMRError
from fedmr_med.files import PRIVATE, locked
from fedmr_med.sites import SITE_FILE, find_site

_LAB = "fedmr_med.lab"
_SERVER_PROGRAM = "nvflare.private.fed.app.server.server_train"


class SiteStart(FLComponent):
    """Ends the process unless the hospital has a valid policy of its own. Files are for the site's user alone."""

    def __init__(self) -> None:
        super().__init__()
        os.umask(PRIVATE)
        if any(map(_of_lab, sys.modules)):
            stop(f"This process has loaded {_LAB}, which is not for hospitals: see what imports it, and remove it.")
        sys.meta_path.insert(0, _NoLab())
        try:
            client = read_json(Path("startup") / "fed_client.json").get("client", {})
            find_site(str(client.get("fqsn")).rpartition(".")[2], local=Path("local"), job_sites=None)
        except FedMRError as e:
            stop(f"{e} Write local/{SITE_FILE} (local/{SITE_EXAMPLE} is a beginning), or take it over: site adopt.")


class ServerStart(FLComponent):
    """Ends the process if another server runs from the same kit. Files are for the server's user alone."""

    _held = ExitStack()

    def __init__(self) -> None:
        super().__init__()
        os.umask(PRIVATE)
        if _SERVER_PROGRAM not in sys.orig_argv:
            return  # the process of a job
        try:
            self._held.enter_context(locked(Path("server.lock"), patience=0))
        except TimeoutError:
            stop(f"A server runs from {Path.cwd()} already: two would write into the same chains. Stop it first.")
        service = read_json(Path("startup") / "fed_server.json").get("servers", [{}])[0].get("service", {})
        port = str(service.get("target", "")).rpartition(":")[2]
        if port.isdigit() and not _is_free(int(port)):
            stop(f"Port {port} is in use by another program: stop that, or provision the server with another --port.")


class _NoLab(MetaPathFinder):
    """Asked before Python's own finders; finds nothing, and refuses what is of the lab."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if _of_lab(fullname):
            raise ModuleNotFoundError(f"{fullname} is not for the processes of a hospital", name=fullname)


def _of_lab(module: str) -> bool:
    return module == _LAB or module.startswith(f"{_LAB}.")


def _is_free(port: int) -> bool:
    """Whether a server could listen on a port of this machine."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError as e:
            return e.errno != errno.EADDRINUSE
    return True


def stop(reason: str) -> None:
    """Say why, and end this process at once."""
    sys.stderr.write(f"fedmr-med: {reason}\n")
    sys.stderr.flush()
    os._exit(1)
