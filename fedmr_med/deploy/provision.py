"""Making the startup kits of a federation, by FLARE's own provisioning with the toolkit's builder.

Where a relay stands between hospitals and server, FLARE lets it listen without TLS unless the project says otherwise,
and takes a misspelt key for nothing said. Here every end of it speaks mutual TLS, and its certificates say what it is.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

from fedmr_med.deploy.acts import record
from fedmr_med.deploy.kit import read_json
from fedmr_med.errors import ConfigError
from fedmr_med.files import private_files, write_json
from fedmr_med.schema import check_name, read_yaml
from fedmr_med.sites import SITE_FILE, load_site

_ADDRESS = "address.json"
_BUILDER = "fedmr_med.deploy.builder.LockedKitBuilder"
_CERTIFICATES = {"nvflare.lighter.impl.cert.CertBuilder": "fedmr_med.deploy.builder.KitCertBuilder"}
_LISTENS = {"scheme": "http", "connection_security": "mtls"}
_CONNECTS = {"connection_security": "mtls"}


def provision(
    project_file: Path, workspace: Path, sites: Path, *, host: str | None = None, port: int | None = None
) -> Path:
    """Make a kit for the server, each hospital and each person; return the folder with the kits.

    Run again in the same workspace, it keeps all keys, certificates and the server's address, and makes kits for
    new participants. Only the person who runs it can read what it writes.

    Args:
        project_file: FLARE's ``project.yml``.
        workspace: keeps the project's root key (``<name>/state``) and the kits (``<name>/prod_NN``).
        sites: folder with one folder per hospital that holds its ``site.yaml``.
        host: name by which hospitals reach the server, instead of that of an earlier run or the project file.
        port: the server's port, likewise.

    Raises:
        ConfigError: the project or a site file is not valid.
    """
    project = read_yaml(project_file)
    participants = project.get("participants")
    if not isinstance(participants, list) or not all(isinstance(entry, dict) for entry in participants):
        raise ConfigError(f"{project_file}: participants must be a list.", code="project.form", key="participants")
    address: dict[str, Any] = {}
    for entry in participants:
        name, kind = str(entry.get("name")), entry.get("type")
        if kind in ("client", "relay"):
            check_name(name, f"{project_file}: participants")
        if kind == "client":
            load_site(sites / name / SITE_FILE)
        elif kind == "relay":
            _set_relay(entry, f"{project_file}: {name}: listening_host")
        elif kind == "server":
            address = _address(workspace / str(project.get("name")) / "state", host, port)
            _set_address(entry, **address)
        if isinstance(entry.get("connect_to"), dict):
            _demand(entry["connect_to"], _CONNECTS, f"{project_file}: {name}: connect_to")
    builders = [builder for builder in project.get("builders", []) if builder.get("path") == _BUILDER]
    if not builders:
        raise ConfigError(f"{project_file}: builders must list {_BUILDER}.", code="project.form", key="builders")
    builders[0]["args"] = {"sites": str(sites.resolve())}
    for builder in project["builders"]:
        builder["path"] = _CERTIFICATES.get(str(builder.get("path")), builder.get("path"))
    with private_files():
        kits = _run(project, project_file, workspace)
        write_json(kits.parent / "state" / _ADDRESS, address)
        names = sorted(str(entry.get("name")) for entry in participants)
        record(workspace, "provision", kits=kits.name, participants=names, **address)
    return kits


def _address(state: Path, host: str | None, port: int | None) -> dict[str, Any]:
    """Return the server's address as asked for now, or else as it was asked for in an earlier run."""
    earlier = read_json(state / _ADDRESS) if (state / _ADDRESS).exists() else {}
    return {"host": host or earlier.get("host"), "port": port or earlier.get("port")}


def _set_address(server: dict[str, Any], host: str | None, port: int | None) -> None:
    if host:
        server["default_host"] = host
        server["host_names"] = sorted({host, "localhost", "127.0.0.1"})
    if port:
        server["fed_learn_port"] = server["admin_port"] = port


def _set_relay(relay: dict[str, Any], where: str) -> None:
    """Let a relay speak mutual TLS, to its parent and to who connects to it."""
    listens, known = relay.get("listening_host"), {"default_host", "host_names", "port", *_LISTENS}
    whole = isinstance(listens, dict) and listens.get("default_host") and listens.get("port")
    if not isinstance(listens, dict) or not whole or listens.keys() - known:
        raise ConfigError(
            f"{where} must have default_host and port, and of other keys {', '.join(sorted(known))} alone.",
            code="project.form",
            key="listening_host",
        )
    _demand(listens, _LISTENS, where)
    relay["connect_to"] = relay.get("connect_to") or {}


def _demand(section: dict[str, Any], wanted: dict[str, str], where: str) -> None:
    """Put values into a section that says nothing else."""
    for key, value in wanted.items():
        if section.setdefault(key, value) != value:
            raise ConfigError(f"{where}.{key} must be {value}.", code="project.form", key=key)


def _run(project: dict[str, Any], project_file: Path, workspace: Path) -> Path:
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    try:
        # FLARE reports on stdout, which belongs to this command's own result.
        with contextlib.redirect_stdout(sys.stderr):
            context = Provisioner(str(workspace.resolve()), prepare_builders(project)).provision(
                prepare_project(project)
            )
    except (ValueError, RuntimeError, KeyError) as e:
        raise ConfigError(f"{project_file}: {e}.", code="project.provision") from e
    if context.get(CtxKey.BUILD_ERROR):
        raise ConfigError(f"{project_file}: {'; '.join(context.get_errors())}.", code="project.provision")
    return Path(context[CtxKey.CURRENT_PROD_DIR])
