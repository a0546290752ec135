"""Writes docs/settings.md, the reference of ``fedmr.yaml`` and ``site.yaml``, from the schema.

Run it after a change of a key: ``python docs/settings.py``. A test compares.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.schema import Strict
from fedmr_med.schema.keys import Key, keys, summary
from fedmr_med.sites import SiteConfig

PAGE = Path(__file__).with_suffix(".md")
INTRODUCTION = """\
# Settings

Every key of the two files that people write; any other key is refused. `docs/settings.py` makes this page from the
schema. `fedmr-med jobs show` prints a job with all its defaults, `fedmr-med site policy show` a hospital's policy.
"""
FILES = {
    "`fedmr.yaml`: a job": JobConfig,
    "`site.yaml`: a hospital": SiteConfig,
}


def page() -> str:
    """Return the whole page."""
    chapters = [INTRODUCTION]
    for title, whole in FILES.items():
        chapters += [f"## {title}\n", *tables(whole, "")]
    return "\n".join(chapters)


def tables(section: type[Strict], path: str) -> Iterator[str]:
    """Yield what a section is for and a table of its keys, then the same for the sections in it."""
    if path:
        yield f"### {path}\n"
    yield f"{linked(summary(section))}\n"
    rows = [row(key) for key in keys(section) if key.meaning]
    if rows:
        yield "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *rows, ""])
    for key in keys(section):
        below = f"{path.strip('`')}.{key.name}".strip(".")
        for part in key.sections:
            yield from tables(part, f"`{below}`{source(part)}")


def source(section: type[Strict]) -> str:
    """Return what tells a section from others that may stand in its place."""
    field = section.model_fields.get("source")
    return f" with `source: {field.annotation.__args__[0]}`" if field and field.annotation else ""


def row(key: Key) -> str:
    """Return a key's row of a table."""
    return f"| `{key.name}` | {key.values} | {default(key)} | {linked(key.meaning)} |"


def default(key: Key) -> str:
    """Return a key's default as it would be written."""
    if key.field.is_required():
        return "required"
    value: Any = key.field.default
    if isinstance(value, Strict):
        differing = value.model_dump(mode="json", exclude_defaults=True)
        return f"`{json.dumps(differing)}`" if differing else "as below"
    return f"`{value if isinstance(value, (str, Path)) else json.dumps(value)}`"


def linked(text: str) -> str:
    """Turn the names of other pages into links."""
    return re.sub(r"docs/(\w+\.md)", r"[docs/\1](\1)", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
