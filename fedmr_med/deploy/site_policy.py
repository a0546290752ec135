"""Changing a hospital's policy."""

import io
from pathlib import Path
from typing import Any

from fedmr_med.deploy.manifest import write_seal
from fedmr_med.errors import PolicyError
from fedmr_med.files import write_text
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import read_yaml, validated
from fedmr_med.sites import SITE_FILE, SiteConfig, load_site


def policy_of(kit: Path) -> SitePolicy:
    """Return the policy in a kit.

    Raises:
        ConfigError: there is none, or it is not valid.
    """
    return load_site(kit / "local" / SITE_FILE).policy


def set_policy(kit: Path, changes: dict[str, Any], class_names: tuple[str, ...] | None) -> SitePolicy:
    """Change settings of the policy in a kit, write it and seal the kit with the site's own key.

    Executor, filter and guard all read this one file. Its comments and its layout stay.

    Args:
        kit: the hospital's kit.
        changes: new values by name; of ``training`` only the floors it names change.
        class_names: the classes that exist, if known.

    Raises:
        PolicyError: a value is not valid, or a class does not exist.
        ConfigError: the site file is not valid, or the kit has no key to seal it with.
    """
    path = kit / "local" / SITE_FILE
    content = read_yaml(path)
    validated(SiteConfig, content, str(path))
    before = content.get("policy") or {}
    if changes.get("training") is not None:
        changes = {**changes, "training": {**(before.get("training") or {}), **changes["training"]}}
    wanted = {**before, **changes}
    policy = validated(SitePolicy, wanted, str(path), PolicyError, section="policy")
    unknown = set(policy.share_prototypes if isinstance(policy.share_prototypes, tuple) else ()) - set(
        class_names or ()
    )
    if class_names and unknown:
        raise PolicyError(
            f"{sorted(unknown)[0]!r} is not one of the classes {', '.join(class_names)}.",
            code="config.unknown-name",
            key="policy.share_prototypes",
        )
    write_text(path, _edited(path.read_text(encoding="utf-8"), changes))
    write_seal(kit)
    return policy


def _edited(text: str, changes: dict[str, Any]) -> str:
    """Return the text of a site file with other values in its policy."""
    from ruamel.yaml import YAML

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 120
    content = editor.load(text)
    policy = content.setdefault("policy", {})
    for key, value in changes.items():
        policy[key] = list(value) if isinstance(value, tuple) else value
    stream = io.StringIO()
    editor.dump(content, stream)
    return stream.getvalue()
