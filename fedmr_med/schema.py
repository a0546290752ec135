"""What every configuration is made of: frozen pydantic models that refuse unknown keys, read from YAML."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from fedmr_med.errors import ConfigError, FedMRError

T = TypeVar("T", bound=BaseModel)

MAX_BYTES = 10**6
MAX_DEPTH = 20
"""What a settings file may be at most, in bytes and in levels of nesting."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""A name that becomes a folder, such as a chain's id: it must not be a path."""


def brief(text: object, longest: int = 120) -> str:
    """Return the first line of a text that comes from elsewhere, and no more of it than fits into a sentence."""
    line = (str(text).splitlines() or [""])[0]
    return line if len(line) <= longest else line[:longest] + "..."


class Strict(BaseModel):
    """A frozen section that refuses unknown keys, and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def dump_yaml(config: BaseModel) -> str:
    """Return a configuration as YAML, defaults included, so that a reader sees every setting."""
    return _as_yaml(config.model_dump_json())


@lru_cache(maxsize=8)
def _as_yaml(content: str) -> str:
    """Return JSON as YAML. A checkpoint holds the job's settings, and writing them would be most of its cost."""
    return yaml.safe_dump(json.loads(content), sort_keys=False, allow_unicode=True, width=110)


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, which let a kilobyte stand for gigabytes, and without deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it uses an alias (*name); write the value out")
        if self.depth >= MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(text: str) -> Any:
    """Return what a YAML text says.

    Raises:
        ValueError: it is not valid, uses aliases, is nested too deeply, or has a number that cannot be read.
    """
    try:
        return yaml.load(text, _PlainLoader)
    except (yaml.YAMLError, ValueError, OverflowError) as e:
        # The constructors of numbers and dates raise errors of their own.
        raise ValueError(str(e).splitlines()[0]) from e


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; raise ConfigError naming the file when that is not possible."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ConfigError(
                f"{path} is larger than {MAX_BYTES} bytes, which no settings file is.", code="file.too-large"
            )
        content = parse_yaml(text.decode())
    except FileNotFoundError as e:
        raise ConfigError(f"{path} does not exist.", code="file.missing") from e
    except (OSError, ValueError) as e:
        raise ConfigError(f"{path} cannot be read: {str(e).splitlines()[0]}.", code="file.unreadable") from e
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path} must hold keys and values, not {type(content).__name__}.", code="config.not-a-mapping"
        )
    return content


def invalid(message: str, *, code: str, key: str | None = None) -> PydanticCustomError:
    """Return what a validator raises.

    Args:
        message: the sentence, without a full stop.
        code: see :class:`FedMRError`.
        key: the key that is at fault, where the validator looks at a whole section; relative to the section.
    """
    return PydanticCustomError(code, message, {} if key is None else {"key": key})


def validated(
    model: type[T], content: dict[str, Any], where: str, error: type[FedMRError] = ConfigError, *, section: str = ""
) -> T:
    """Validate ``content`` as ``model``.

    Args:
        model: what it should be.
        content: keys and values.
        where: the file or option it comes from, for the message.
        error: what to raise when it is not valid.
        section: where the keys stand in the whole file, for the error's key.

    Raises:
        FedMRError: ``error``, naming ``where`` and the first offending key.
    """
    try:
        return model.model_validate(content)
    except ValidationError as e:
        first = e.errors()[0]
        kind, path = first["type"], [str(part) for part in first["loc"]]
        unknown = kind == "extra_forbidden"
        reason = "is not a known key" if unknown else brief(first["msg"], 300)
        more = f" ({e.error_count() - 1} more)" if e.error_count() > 1 else ""
        code = "config.unknown-key" if unknown else kind if "." in kind else f"config.{kind.replace('_', '-')}"
        key = ".".join(filter(None, [section, *path, first.get("ctx", {}).get("key")]))
        raise error(
            f"{where}: {brief('.'.join(path)) or 'the file'}: {reason}{more}.", code=code, key=brief(key) or None
        ) from e
