"""The locked settings of a startup kit: what each file in ``local/`` must say.

FLARE's defaults let a job bring its own code and let an administrator read files. A kit of this toolkit allows
neither, for any role, and names exactly the classes its jobs may use. :mod:`fedmr_med.deploy.lint` finds what was
changed since.
"""

import json
from pathlib import Path
from typing import Any, Literal

from fedmr_med.errors import ConfigError
from fedmr_med.sites import SITE_FILE, SiteConfig, load_site

PRIVACY, AUTHORIZATION, RESOURCES = "privacy.json", "authorization.json", "resources.json"
LISTENER, RELAY_RESOURCES = "comm_config.json", "relay__resources.json"
"""In ``local/``: how a relay listens, and in the kit of a hospital behind one, where that is."""

Kind = Literal["server", "hospital", "relay", "person"]
STARTUP: dict[Kind, str] = {
    "server": "fed_server.json",
    "relay": "fed_relay.json",
    "person": "fed_admin.json",
    "hospital": "fed_client.json",
}
"""The file in ``startup/`` that tells whose kit it is."""

SITE_EXAMPLE = f"{SITE_FILE}.example"
SCOPE = "fedmr"

FILTER = "fedmr_med.flare.filter.PrototypeFilter"
GUARD = "fedmr_med.flare.guard.PolicyGuard"
AUDIT = "fedmr_med.flare.audit.AuditLog"
SITE_START = "fedmr_med.deploy.start.SiteStart"
SERVER_START = "fedmr_med.deploy.start.ServerStart"

SITE_CLASSES = ("fedmr_med.flare.executor.FedMRExecutor",)
SERVER_CLASSES = ("fedmr_med.flare.controller.FedMRController",)

# Parts of FLARE's default settings that stream a site's log to the server or receive it.
_LOG_STREAMING = ("site_log_streamer", "log_receiver")
_START_ID = "fedmr_start"
NEVER = ("byoc", "shell_commands", "server-predeployed-flwr")


def authorization() -> dict[str, Any]:
    """Return who may do what: nobody brings code, nobody gets a shell."""
    none = dict.fromkeys(NEVER, "none")
    # The log is the server's part of a job; sites stream none of theirs.
    of_a_job = ("clone_job", "manage_job", "download_job", "get_job_log")
    own = dict.fromkeys(of_a_job, "n:submitter")
    everything = dict.fromkeys(("submit_job", *of_a_job), "any")
    return {
        "format_version": "1.0",
        "permissions": {
            "project_admin": everything | {"view": "any", "operate": "any"} | none,
            "org_admin": {"manage_job": "o:submitter", "view": "any", "operate": "o:site"} | none,
            "lead": {"submit_job": "any"} | own | {"view": "any", "operate": "o:site"} | none,
            "member": {"view": "any"} | none,
        },
    }


def site_privacy() -> dict[str, Any]:
    """Return a site's privacy policy: the filter on every result, then the guard and the audit log."""
    return {
        "scopes": [{"name": SCOPE, "task_result_filters": [{"path": FILTER}]}],
        "default_scope": SCOPE,
        "components": [
            {"id": "fedmr_policy_guard", "path": GUARD},
            {"id": "fedmr_audit_log", "path": AUDIT},
        ],
    }


def server_privacy() -> dict[str, Any]:
    """Return the server's privacy policy: it knows the one scope, so a job that names another is refused at once."""
    return {"scopes": [{"name": SCOPE}], "default_scope": SCOPE}


def site_resources(default: dict[str, Any]) -> dict[str, Any]:
    """Return a site's resources: FLARE's defaults with the exact class list and without log streaming."""
    return _locked(default, SITE_CLASSES, SITE_START) | {"allow_log_streaming": False}


def server_resources(default: dict[str, Any]) -> dict[str, Any]:
    """Return the server's resources: FLARE's defaults with the exact class list and its stores in the workspace.

    FLARE keeps jobs in the machine's temporary folder by default, where a restart loses them.
    """
    resources = _locked(default, SERVER_CLASSES, SERVER_START)
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["path"] = "fedmr_med.flare.stores.WorkspaceJobManager"
            component["args"]["uri_root"] = "jobs-storage"
    storage = resources["snapshot_persistor"]["args"]["storage"]
    storage["path"] = "fedmr_med.flare.stores.WorkspaceStorage"
    storage["args"]["root_dir"] = "snapshot-storage"
    return resources


def kind_of(kit: Path) -> Kind:
    """Return whose kit a folder is; of one that is no kit, what is left of a hospital's."""
    return next((kind for kind, name in STARTUP.items() if (kit / "startup" / name).is_file()), "hospital")


def must_be_a_hospitals(kit: Path) -> None:
    """Refuse to call a folder's journals empty where it is not a hospital's kit.

    Raises:
        ConfigError: it is somebody else's, or no kit.
    """
    if not (kit / "startup" / STARTUP["hospital"]).is_file():
        raise ConfigError(
            f"{kit.resolve()} is no startup kit of a hospital; name the hospital's (--kit, FEDMR_MED_KIT).",
            code="kit.form",
            key="--kit",
        )


def site_settings(kit: Path) -> SiteConfig:
    """Return a hospital's own settings in its kit; raise ConfigError if there are none, or they are not valid."""
    return load_site(kit / "local" / SITE_FILE)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file; raise ConfigError if it does not exist or does not hold a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise ConfigError(f"{path} does not exist.", code="file.missing") from e
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ConfigError(f"{path} cannot be read: {e}.", code="file.unreadable") from e
    if not isinstance(content, dict):
        raise ConfigError(f"{path} does not hold a JSON object.", code="file.unreadable")
    return content


def _locked(default: dict[str, Any], classes: tuple[str, ...], start: str) -> dict[str, Any]:
    dropped = (*_LOG_STREAMING, _START_ID)
    kept = [component for component in default["components"] if component["id"] not in dropped]
    components = [{"id": _START_ID, "path": start}, *kept]
    locked = {"class_list_enforcement_mode": "enforce", "class_allow_list": list(classes), "components": components}
    return json.loads(json.dumps(default | locked))  # type: ignore[no-any-return]
