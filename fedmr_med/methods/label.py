"""What a method is called where people read it: its name, and every option of the job that makes it another one."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedmr_med.config import JobConfig


def label_of(job: JobConfig) -> str:
    """Return the method's name with its variant, options and server optimizer, as far as the job sets them."""
    options = dict(job.method.options)
    variant = options.pop("variant", None)
    server = job.federation.server
    settings = {} if server is None else {"server": server.model_dump(mode="json", exclude_defaults=True)}
    remarks = [*([str(variant)] if variant else []), *_flat(options | settings)]
    return f"{job.method.name} ({', '.join(remarks)})" if remarks else job.method.name


def _flat(options: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield ``key value`` of nested options, their keys dotted."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key} {value}"
