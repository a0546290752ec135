"""Changing a hospital's policy."""

import io
from pathlib import Path
from typing import Any

from fedmr_med.config import merge
from fedmr_med.deploy.manifest import write_seal
from fedmr_med.errors import PolicyError
from fedmr_med.files import write_text
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import read_yaml, validated
from fedmr_med.sites import SITE_FILE, SiteConfig


def set_policy(kit: Path, changes: dict[str, Any], class_names: tuple[str, ...] | None) -> SitePolicy:
    """Change settings of the policy in a kit, write it and seal the kit with the site's own key.

    Executor, filter and guard all read this one file. Its comments and its layout stay. Of a section only the keys that
    ``changes`` names change. ``class_names`` are the classes that exist, if known.

    Raises:
        PolicyError: a value is not valid, or a class does not exist.
        ConfigError: the site file is not valid, or the kit has no key to seal it with.
    """
    path = kit / "local" / SITE_FILE
    content = read_yaml(path)
    validated(SiteConfig, content, str(path))
    wanted = merge(content.get("policy") or {}, changes)
    policy = validated(SitePolicy, wanted, str(path), PolicyError, section="policy")
    shared = policy.share_prototypes
    unknown = set(shared if isinstance(shared, tuple) else ()) - set(class_names or ())
    if class_names and unknown:
        raise PolicyError(
            f"{min(unknown)!r} is not one of the classes {', '.join(class_names)}.",
            code="config.unknown-name",
            key="policy.share_prototypes",
        )
    values = policy.model_dump(mode="json", include=set(changes), exclude_unset=True)
    write_text(path, _edited(path.read_text(encoding="utf-8"), {"policy": values}))
    write_seal(kit)
    return policy


def _edited(text: str, changes: dict[str, Any]) -> str:
    """Return the text of a site file with other values; its comments and the other keys stay."""
    from ruamel.yaml import YAML

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 120
    content = editor.load(text)
    _put(content, changes)
    stream = io.StringIO()
    editor.dump(content, stream)
    return stream.getvalue()


def _put(section: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(section.get(key), dict):
            _put(section[key], value)
        else:
            section[key] = value
