"""Finding what a kit's files open that no kit of this toolkit opens.

FLARE ignores unknown and misspelt keys, takes missing files for permission, and reads more files than one would think
of. Every linter returns its problems in words; none means all is as it should be.
"""

import json
from collections.abc import Iterator
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
    """Return where a site's privacy policy differs from that of a kit: anything else could let FLARE skip a layer."""
    return list(_differences(content, kits.site_privacy(), "the file"))


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
    mode = {"class_list_enforcement_mode": "enforce"}  # also FLARE's default
    expected: dict[str, Any] = mode | {"class_allow_list": list(kits.SERVER_CLASSES if server else kits.SITE_CLASSES)}
    if not server:
        expected["allow_log_streaming"] = False
    found = {key: (mode | content).get(key) for key in expected}
    return [*_differences(found, expected, "the file"), *_lint_components(content.get("components"), server=server)]


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


def _lint_components(components: Any, *, server: bool) -> list[str]:
    start = kits.SERVER_START if server else kits.SITE_START
    known = _SERVER_PARTS if server else _SITE_PARTS
    entries = [entry for entry in components if isinstance(entry, dict)] if isinstance(components, list) else []
    paths = [str(entry.get("path")) for entry in entries if entry.get("disabled") is not True]
    problems = [] if start in paths else [f"components lacks {start}"]
    return problems + [
        f"components has the extra entry {path}" for path in paths if path != start and not path.startswith(known)
    ]


def _differences(found: Any, expected: Any, where: str) -> Iterator[str]:
    """Yield in words where plain values are not what they have to be."""
    if isinstance(found, dict) and isinstance(expected, dict):
        yield from _unknown_keys(found, set(expected), where)
        for key, value in expected.items():
            yield from _differences(found.get(key), value, key)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (value, wanted) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(value, wanted, f"{where}[{number}]")
    elif found != expected:
        yield f"{where} is {json.dumps(found)} and has to be {json.dumps(expected)}"


def _unknown_keys(content: dict[str, Any], known: set[str], where: str) -> list[str]:
    return [f"{where} has the unknown key {key!r}" for key in content if key not in known]
