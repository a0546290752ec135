"""Finding what a kit's files open that no kit of this toolkit opens.

FLARE ignores unknown and misspelt keys, takes missing files for permission, and reads more files than one would think
of. Every linter returns its problems in words; none means all is as it should be.
"""

from pathlib import Path
from typing import Any

from fedmr_med.deploy import kit as kits

# Where FLARE's own parts of a server or site come from; `nvflare deploy prepare` exchanges some of them.
_SITE_PARTS = (
    "nvflare.app_common.resource_managers.",
    "nvflare.app_common.resource_consumers.",
    "nvflare.app_common.job_launcher.",
    "nvflare.app_opt.job_launcher.",
)
_SERVER_PARTS = (
    *_SITE_PARTS,
    "nvflare.app_common.job_schedulers.",
    "nvflare.app_common.storages.filesystem_storage.",
    "fedmr_med.flare.stores.",
)
_CLOSED = ("none", "no")


def lint_privacy(content: dict[str, Any]) -> list[str]:
    """Return what is wrong with a site's privacy policy."""
    problems = _unknown_keys(content, {"scopes", "default_scope", "components"}, "the file")
    scopes = content.get("scopes")
    if not isinstance(scopes, list) or not scopes:
        return [*problems, "scopes is missing or empty, so FLARE would apply no filter at all"]
    for number, scope in enumerate(scopes):
        problems += _lint_scope(scope, f"scopes[{number}]")
    if content.get("default_scope") != kits.SCOPE:
        problems.append(f"default_scope is not {kits.SCOPE}")
    return problems + _lint_privacy_components(content.get("components"))


def lint_authorization(content: dict[str, Any]) -> list[str]:
    """Return which rights an authorization file gives beyond those of a kit; it may give fewer."""
    permissions = content.get("permissions")
    if not isinstance(permissions, dict) or not permissions:
        return ["permissions is missing, so FLARE would allow everything"]
    problems = []
    ours = kits.authorization()["permissions"]
    for role, rights in permissions.items():
        if role not in ours:
            problems.append(f"{role} is not a role of this toolkit; remove it")
        elif not isinstance(rights, dict):
            problems.append(f"{role} has all rights at once; give them one by one")
        else:
            problems += [
                f"{role} has the right {right}; set it to {ours[role].get(right, 'none')}"
                for right, value in rights.items()
                if value not in (*_CLOSED, ours[role].get(right, "none"))
            ]
    return problems


def lint_resources(content: dict[str, Any], *, server: bool = False) -> list[str]:
    """Return what a resources file opens."""
    classes = kits.SERVER_CLASSES if server else kits.SITE_CLASSES
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
    return problems + _lint_components(content.get("components"), server=server)


def lint_startup(content: dict[str, Any], *, server: bool = False) -> list[str]:
    """Return what ``fed_server.json`` or ``fed_client.json`` leaves unprotected: unsigned jobs, one-sided TLS."""
    problems = []
    if content.get("require_signed_jobs", True) is not True:
        problems.append("require_signed_jobs is not true, so anybody's job would be taken")
    ends = content.get("servers") if server else [content.get("client")]
    for end in ends if isinstance(ends, list) else [None]:
        if not isinstance(end, dict) or end.get("connection_security", "mtls") != "mtls":
            problems.append("connection_security is not mtls")
    return problems


def lint_relay(content: dict[str, Any]) -> list[str]:
    """Return what ``fed_relay.json``, or ``relay__resources.json`` of a hospital behind a relay, leaves unprotected."""
    behind = "relay_config" in content
    problems = _unknown_keys(content, {"format_version", "relay_config"}, "the file") if behind else []
    end = content.get("relay_config" if behind else "connect_to")
    if not isinstance(end, dict) or end.get("connection_security") != "mtls":
        problems.append("connection_security is not mtls")
    return problems


def lint_listener(content: dict[str, Any]) -> list[str]:
    """Return what ``comm_config.json`` of a relay leaves unprotected, to which hospitals connect."""
    listener = content.get("internal")
    resources = listener.get("resources") if isinstance(listener, dict) else None
    if not isinstance(resources, dict) or resources.get("connection_security") != "mtls":
        return ["connection_security is not mtls, so the relay would pass on in the clear"]
    return []


def lint_files(kit: Path) -> list[str]:
    """Return the files in a kit that FLARE would read beyond the known ones."""
    custom = kit / "local" / "custom"
    problems = [f"{custom} exists: FLARE would import code from it"] if custom.exists() else []
    for folder in (kit / "startup", kit / "local"):
        extra = {*folder.glob("*__*resources.json"), *folder.glob("job_resources.json")}
        extra.discard(kit / "local" / kits.RELAY_RESOURCES)
        problems += [f"{path} would add components" for path in sorted(extra)]
    for key in (kit / "startup").glob("*.key"):
        if key.stat().st_mode & 0o077:
            problems.append(f"{key} can be read by others: chmod 600 {key}")
    return problems


def _lint_scope(scope: Any, where: str) -> list[str]:
    if not isinstance(scope, dict):
        return [f"{where} is not an object"]
    problems = _unknown_keys(scope, {"name", "properties", "task_data_filters", "task_result_filters"}, where)
    if scope.get("name") != kits.SCOPE:
        problems.append(f"{where} is not the scope {kits.SCOPE}; a job could choose it")
    filters = scope.get("task_result_filters")
    entries = filters if isinstance(filters, list) else []
    ours = [entry for entry in entries if isinstance(entry, dict) and entry.get("path") == kits.FILTER]
    if not ours:
        problems.append(f"{where}.task_result_filters lacks {kits.FILTER}")
    for entry in ours:
        problems += _unknown_keys(entry, {"path", "args", "direction"}, f"{where}.task_result_filters")
        if str(entry.get("direction", "out")).lower() not in ("out", "inout"):
            problems.append(f"{where}.task_result_filters: direction must be out, or the filter never sees a result")
    return problems


def _lint_privacy_components(components: Any) -> list[str]:
    paths = _paths(components)
    problems = [f"components has the extra entry {path}" for path in paths if path not in (kits.GUARD, kits.AUDIT)]
    missing = [path for path in (kits.GUARD, kits.AUDIT) if path not in paths]
    if missing:
        return problems + [f"components lacks {path}" for path in missing]
    if paths.index(kits.AUDIT) < paths.index(kits.GUARD):
        problems.append("components must list the guard before the audit log")
    return problems


def _lint_components(components: Any, *, server: bool) -> list[str]:
    start = kits.SERVER_START if server else kits.SITE_START
    known = _SERVER_PARTS if server else _SITE_PARTS
    paths = _paths(components)
    problems = [] if start in paths else [f"components lacks {start}"]
    return problems + [
        f"components has the extra entry {path}" for path in paths if path != start and not path.startswith(known)
    ]


def _paths(components: Any) -> list[str]:
    entries = components if isinstance(components, list) else []
    return [
        str(entry.get("path")) for entry in entries if isinstance(entry, dict) and entry.get("disabled") is not True
    ]


def _unknown_keys(content: dict[str, Any], known: set[str], where: str) -> list[str]:
    return [f"{where} has the unknown key {key!r}" for key in content if key not in known]
