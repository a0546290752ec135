"""The keys of a section of settings, for people: command-line options, templates and reference pages come from here.

What a key means is said once, under ``Attributes:`` in the docstring of its section.
"""

import inspect
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedmr_med.schema import Strict, as_yaml

_WIDTH = 110
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ROLE = re.compile(r":\w+:(`[^`]+`)")
_PYTHON = re.compile(r"\b(?:None|True|False)\b")
_YAML = {"None": "`null`", "True": "`true`", "False": "`false`"}
_SWITCH = {"on": True, "true": True, "off": False, "false": False}
_KINDS = {int: "a whole number", float: "a number", str: "text", Path: "a path", dict: "keys and values"}


@dataclass(frozen=True)
class Key:
    """One key of a section: what the section says of it, as Markdown, and its type, default and bounds."""

    name: str
    meaning: str
    field: FieldInfo

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """The types that a value can have."""
        return tuple(_kinds(self.field.annotation))

    @property
    def sections(self) -> tuple[type[Strict], ...]:
        """The sections that a value can be; none where it is a plain value."""
        return tuple(kind for kind in self.kinds if isinstance(kind, type) and issubclass(kind, Strict))

    @property
    def hint(self) -> str:
        """The first sentence of the meaning, as plain text."""
        text = self.meaning.partition(". ")[0].rstrip(".")
        start = text[:1] if text.startswith("`") else text[:1].upper()
        return f"{start}{text[1:]}.".replace("`", "")

    @property
    def values(self) -> str:
        """What a value can be, in words, as Markdown."""
        plain = [kind for kind in self.kinds if kind not in self.sections]
        words = ["a section"] if self.sections else []
        words += [word for kind in plain for word in _in_words(kind, self.field.metadata)]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

    def read(self, text: str) -> Any:
        """Return the value that a word of the command line stands for; the schema checks and converts it."""
        if bool in self.kinds and text in _SWITCH:
            return _SWITCH[text]
        if types.NoneType in self.kinds and text == "null":
            return None
        if any(get_origin(kind) is tuple for kind in self.kinds):
            return [name.strip() for name in text.strip("[]").split(",") if name.strip()]
        return text


def keys(section: type[Strict]) -> tuple[Key, ...]:
    """Return the keys of a section, those that installed packages add to it last."""
    meanings = _meanings(section)
    own = [Key(name, meanings.get(name, ""), field) for name, field in section.model_fields.items()]
    own = [
        replace(key, meaning=summary(key.sections[0]).partition("\n")[0]) if key.sections and not key.meaning else key
        for key in own
    ]
    return (*own, *(key for part in section.added_sections() for key in keys(part)))


def commented_yaml(config: Strict, heading: str) -> str:
    """Return settings as YAML in which a comment before each key says in a sentence what it means."""
    return "\n".join([*_comment(heading, ""), *_lines(config, "")]) + "\n"


def summary(section: type[Strict]) -> str:
    """Return what the docstring of a section says before its keys, as Markdown."""
    return _markdown(inspect.cleandoc(section.__doc__ or "").partition("\nAttributes:")[0].strip())


def _meanings(section: type[BaseModel]) -> dict[str, str]:
    """Return what the docstrings of a section and of those that it extends say of each key."""
    meanings: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        text = inspect.cleandoc(kind.__dict__.get("__doc__") or "").partition("\nAttributes:\n")[2]
        for names, meaning in _ENTRY.findall(text):
            meanings |= dict.fromkeys(names.split(", "), _markdown(meaning))
    return meanings


def _markdown(text: str) -> str:
    """Return a part of a docstring as Markdown, with one line for each paragraph and each item of a list."""
    text = _PYTHON.sub(lambda match: _YAML[match[0]], _ROLE.sub(r"\1", text.replace("``", "`")))
    return re.sub(r"(?<!\n)\n(?!\n|- ) *", " ", text)


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union."""
    if get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _kinds(member)
    else:
        yield annotation


def _in_words(kind: Any, bounds: Sequence[Any]) -> list[str]:
    """Return what a value of one type can be, each choice by itself."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        field = FieldInfo.from_annotation(kind)
        return _in_words(field.annotation, field.metadata)
    if origin is Literal:
        return [f"`{value}`" for value in arguments]
    if origin is tuple:
        return ["a list" if arguments[-1] is ... else f"a list of {len(arguments)}"]
    if kind in (bool, types.NoneType):
        return ["`true`", "`false`"] if kind is bool else ["`null`"]
    limits = f" {_limits(bounds)}" if kind in (int, float) else ""
    return [(_KINDS.get(origin or kind, "a value") + limits).strip()]


def _limits(bounds: Sequence[Any]) -> str:
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    limits = {name: getattr(bound, name) for bound in bounds for name in words if hasattr(bound, name)}
    return " ".join(f"{words[name]} {limit}" for name, limit in sorted(limits.items()))


def _lines(section: Strict, indent: str) -> Iterator[str]:
    """Yield the lines of a section; of a key that a package adds and that is not set, the comment alone."""
    content, last = section.model_dump(mode="json"), None
    for key in keys(type(section)):
        if key.name not in content:
            added = key.name not in type(section).model_fields
            yield from _comment(f"{key.name} ({key.values}): {key.hint}", indent) if added else ()
            continue
        if key.meaning and key.meaning != last:  # two keys can share their meaning
            yield from _comment(key.hint, indent)
        last = key.meaning
        value = getattr(section, key.name)
        if isinstance(value, Strict):
            yield f"{indent}{key.name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield from (indent + line for line in as_yaml({key.name: content[key.name]}).splitlines())


def _comment(text: str, indent: str) -> list[str]:
    return wrap(text.replace("`", ""), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
