"""Texts from templates: HTML pages and the model card."""

from pathlib import Path
from typing import Any


def rendered(path: Path, *, escaped: bool, **values: Any) -> str:
    """Return a jinja2 template filled in; a name that it uses and ``values`` lack is an error.

    Args:
        path: the template.
        escaped: whether texts are escaped, as HTML needs it.
        values: by name.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=escaped, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(path.read_text(encoding="utf-8")).render(**values)
