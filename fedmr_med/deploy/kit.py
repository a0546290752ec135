"""The locked settings of a startup kit: what each file in ``local/`` must say.

FLARE's defaults let a job bring its own code and let an administrator read files. A kit of this toolkit allows
neither, for any role, and names exactly the classes its jobs may use. Typing errors in ``privacy.json`` fail open
in FLARE, so the file is generated and linted.
"""

import json
from pathlib import Path
from typing import Any

from fedmr_med.errors import ConfigError
from fedmr_med.sites import SITE_FILE

PRIVACY, AUTHORIZATION, RESOURCES = "privacy.json", "authorization.json", "resources.json"
SITE_EXAMPLE = f"{SITE_FILE}.example"
SCOPE = "fedmr"

FILTER = "fedmr_med.flare.filter.PrototypeFilter"
GUARD = "fedmr_med.flare.guard.PolicyGuard"
AUDIT = "fedmr_med.flare.audit.AuditLog"
SITE_START = "fedmr_med.deploy.start.SiteStart"
SERVER_START = "fedmr_med.deploy.start.ServerStart"
STARTS = (SITE_START, SERVER_START)

SITE_CLASSES = ("fedmr_med.flare.executor.FedMRExecutor",)
SERVER_CLASSES = ("fedmr_med.flare.controller.FedMRController",)

# Parts of FLARE's default settings that stream a site's log to the server or receive it.
_LOG_STREAMING = ("site_log_streamer", "log_receiver")
_START_ID = "fedmr_start"
_NEVER = ("byoc", "shell_commands", "server-predeployed-flwr")


def authorization() -> dict[str, Any]:
    """Return who may do what: nobody brings code, nobody gets a shell."""
    none = dict.fromkeys(_NEVER, "none")
    own = {"clone_job": "n:submitter", "manage_job": "n:submitter", "download_job": "n:submitter"}
    everything = {"submit_job": "any", "clone_job": "any", "manage_job": "any", "download_job": "any"}
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


def lint_privacy(content: Any) -> list[str]:
    """Return what is wrong with a site's privacy policy; FLARE itself ignores unknown and misspelt keys."""
    if not isinstance(content, dict):
        return ["it does not hold a JSON object"]
    problems = _unknown_keys(content, {"scopes", "default_scope", "components"}, "the file")
    scopes = content.get("scopes")
    if not isinstance(scopes, list) or not scopes:
        return [*problems, "scopes is missing or empty, so FLARE would apply no filter at all"]
    names = []
    for number, scope in enumerate(scopes):
        where = f"scopes[{number}]"
        if not isinstance(scope, dict):
            problems.append(f"{where} is not an object")
            continue
        names.append(scope.get("name"))
        problems += _lint_scope(scope, where)
    if content.get("default_scope") not in names:
        problems.append("default_scope does not name one of the scopes")
    return problems + _lint_components(content.get("components"))


def lint_authorization(content: Any) -> list[str]:
    """Return what an authorization file allows that no kit of this toolkit allows."""
    permissions = content.get("permissions") if isinstance(content, dict) else None
    if not isinstance(permissions, dict) or not permissions:
        return ["permissions is missing, so FLARE would allow everything"]
    problems = []
    for role, rights in permissions.items():
        for right in _NEVER:
            value = rights.get(right, "none") if isinstance(rights, dict) else rights
            if value not in ("none", "no"):
                problems.append(f"{role} has the right {right}; set it to none")
    return problems


def lint_resources(content: Any, *, server: bool = False) -> list[str]:
    """Return what a resources file opens that no kit of this toolkit opens."""
    if not isinstance(content, dict):
        return ["it does not hold a JSON object"]
    classes = SERVER_CLASSES if server else SITE_CLASSES
    problems = []
    if content.get("class_list_enforcement_mode", "enforce") != "enforce":
        problems.append("class_list_enforcement_mode is not enforce")
    listed = content.get("class_allow_list")
    if not isinstance(listed, list):
        problems.append("class_allow_list is missing, so FLARE would use its own list")
    else:
        problems += [f"class_allow_list has the extra entry {entry!r}" for entry in listed if entry not in classes]
        problems += [f"class_allow_list lacks {entry}" for entry in classes if entry not in listed]
    if not server and content.get("allow_log_streaming") is not False:
        problems.append("allow_log_streaming is not false")
    return problems


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ConfigError: it does not exist or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise ConfigError(f"{path} does not exist.") from e
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ConfigError(f"{path} cannot be read: {e}.") from e


def _locked(default: dict[str, Any], classes: tuple[str, ...], start: str) -> dict[str, Any]:
    dropped = (*_LOG_STREAMING, _START_ID)
    kept = [component for component in default["components"] if component["id"] not in dropped]
    components = [{"id": _START_ID, "path": start}, *kept]
    locked = {"class_list_enforcement_mode": "enforce", "class_allow_list": list(classes), "components": components}
    return json.loads(json.dumps(default | locked))  # type: ignore[no-any-return]


def _lint_scope(scope: dict[str, Any], where: str) -> list[str]:
    problems = _unknown_keys(scope, {"name", "properties", "task_data_filters", "task_result_filters"}, where)
    filters = scope.get("task_result_filters")
    entries = filters if isinstance(filters, list) else []
    ours = [entry for entry in entries if isinstance(entry, dict) and entry.get("path") == FILTER]
    if not ours:
        problems.append(f"{where}.task_result_filters lacks {FILTER}")
    for entry in ours:
        problems += _unknown_keys(entry, {"path", "args", "direction"}, f"{where}.task_result_filters")
        if str(entry.get("direction", "out")).lower() not in ("out", "inout"):
            problems.append(f"{where}.task_result_filters: direction must be out, or the filter never sees a result")
    return problems


def _lint_components(components: Any) -> list[str]:
    entries = components if isinstance(components, list) else []
    paths = [entry.get("path") for entry in entries if isinstance(entry, dict) and entry.get("disabled") is not True]
    missing = [path for path in (GUARD, AUDIT) if path not in paths]
    if missing:
        return [f"components lacks {path}" for path in missing]
    if paths.index(AUDIT) < paths.index(GUARD):
        return ["components must list the guard before the audit log"]
    return []


def _unknown_keys(content: dict[str, Any], known: set[str], where: str) -> list[str]:
    return [f"{where} has the unknown key {key!r}" for key in content if key not in known]
