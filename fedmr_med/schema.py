"""What every configuration is made of: frozen pydantic models that refuse unknown keys, read from YAML."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fedmr_med.errors import ConfigError, FedMRError

T = TypeVar("T", bound=BaseModel)

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""A name that becomes a folder, such as a chain's id: it must not be a path."""


class Strict(BaseModel):
    """A frozen section that refuses unknown keys, and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def dump_yaml(config: BaseModel) -> str:
    """Return a configuration as YAML, defaults included, so that a reader sees every setting."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)


def read_yaml(path: Path, error: type[FedMRError] = ConfigError) -> dict[str, Any]:
    """Read a YAML mapping; raise ``error`` naming the file when that is not possible."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise error(f"{path} does not exist.") from e
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise error(f"{path} cannot be read: {str(e).splitlines()[0]}.") from e
    if not isinstance(content, dict):
        raise error(f"{path} must hold keys and values, not {type(content).__name__}.")
    return content


def validated(model: type[T], content: dict[str, Any], where: str, error: type[FedMRError] = ConfigError) -> T:
    """Validate ``content`` as ``model``; raise ``error`` naming ``where`` and the first offending key."""
    try:
        return model.model_validate(content)
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        reason = "is not a known key" if first["type"] == "extra_forbidden" else first["msg"]
        more = f" ({e.error_count() - 1} more)" if e.error_count() > 1 else ""
        raise error(f"{where}: {key}: {reason}{more}.") from e
