"""What every configuration is made of: frozen pydantic models that refuse unknown keys, read from YAML."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from fedmr_med.errors import ConfigError, FedMRError

T = TypeVar("T", bound=BaseModel)
V = TypeVar("V")

Omitted = Annotated[V | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out of the file where there is nothing to say."""

MAX_BYTES = 10**6
MAX_DEPTH = 20
"""What a settings file may be at most, in bytes and in levels of nesting."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""A name that becomes a folder, such as a chain's id: it must not be a path."""

_LONGEST = 100
_SAFE = re.compile(r"\w(?:[\w ./+()-]*[\w+)])?")


_SAYS = "a name has letters, digits, spaces and . / + ( ) _ - only, and begins with a letter or a digit"


def _safe_name(name: str) -> str:
    if not _SAFE.fullmatch(name):
        raise invalid(_SAYS, code="config.name")
    return name


def check_name(name: str, where: str) -> None:
    """Look at a :data:`Name` that is not part of a configuration but comes from ``where``: a file, key or option.

    Raises:
        ConfigError: it has other characters, or is too long.
    """
    if len(name) > _LONGEST or not _SAFE.fullmatch(name):
        raise ConfigError(f"{where}: {brief(repr(name))}: {_SAYS}.", code="config.name", key=where)


Name = Annotated[str, Field(min_length=1, max_length=_LONGEST), AfterValidator(_safe_name)]
"""A name that people and other programs read: of a class, a job, a site. Letters of every script are allowed.

Names come with jobs and model files of others, and end in terminals, spreadsheets, Markdown and MONAI's configurations.
So none can be a formula (``=``), an expression that MONAI runs (``$``), a reference (``@``), markup or a control
character.
"""

FolderName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=_LONGEST)]
"""A :data:`Name` that becomes a folder or a key, see :data:`NAME_PATTERN`."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hex, by which a file or the weights of a model are named."""


def printable(text: object) -> str:
    """Return a text with its control characters written out, so that it cannot redraw what a person reads."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def brief(text: object, longest: int = 120) -> str:
    """Return the first line of a text that comes from elsewhere, and no more of it than fits into a sentence."""
    line = printable((str(text).splitlines() or [""])[0])
    return line if len(line) <= longest else line[:longest] + "..."


class Strict(BaseModel):
    """A frozen section that refuses unknown keys, and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def added_sections(cls) -> "tuple[type[Strict], ...]":
        """Return the sections whose keys installed packages add to this one."""
        return ()


def dump_yaml(config: BaseModel, *, defaults: bool = True) -> str:
    """Return a configuration as YAML, in the order of the schema.

    With its defaults it keeps its meaning whatever version reads it. Without them a reader sees what was decided.
    """
    return _as_yaml(config.model_dump_json(exclude_defaults=not defaults))


@lru_cache(maxsize=8)
def _as_yaml(content: str) -> str:
    """Return JSON as YAML. A checkpoint holds the job's settings, and writing them would be most of its cost."""
    return as_yaml(json.loads(content))


def as_yaml(content: Mapping[str, Any]) -> str:
    """Return settings as YAML, in their own order."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


HASH_VERSION = 1
"""Raised where a setting comes to mean something else although its value stays, such as another default of a method's
option. Every chain then has to be started anew and every approval given again."""


def settings_hash(config: BaseModel, content: Mapping[str, Any], first_defaults: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of the settings that differ from their first defaults.

    A key that a later version adds changes no hash until it is set. See :data:`fedmr_med.config.FIRST_DEFAULTS` for
    what to do when a default changes.

    Args:
        content: what counts, as ``model_dump(mode="json")`` returns it.
        first_defaults: by dotted key, the first default of keys that have another one now.
    """
    text = json.dumps([HASH_VERSION, _set_values(config, content, first_defaults)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _set_values(
    config: BaseModel, content: Mapping[str, Any], first_defaults: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Return the part of ``content`` that differs from the first defaults; of a section, key by key."""
    found = {}
    for name, dumped in content.items():
        own, value, key = getattr(config, name), dumped, prefix + name
        default = first_defaults.get(key, type(config).model_fields[name].default)
        if isinstance(own, BaseModel):
            own = value = _set_values(own, dumped, first_defaults, f"{key}.")
        if isinstance(default, BaseModel):
            default = default.model_dump(mode="json", exclude_unset=True)
        if own != default:
            found[name] = value
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return which settings differ, as ``key: old -> new``."""
    old, new = dict(_flat(before)), dict(_flat(after))
    keys = sorted(old.keys() | new.keys())
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys if old.get(key) != new.get(key)]


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
