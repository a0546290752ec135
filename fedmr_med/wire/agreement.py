"""What both ends of the wire must have in common: the version of the format, of the toolkit, and the job's settings.

A job can ship another settings file to one site than to the others, and sites upgrade at different times. Whoever
reads a message says so before anything is trained or added up.
"""

import re
from collections.abc import Mapping
from typing import Any

from fedmr_med.errors import WireError
from fedmr_med.version import __version__

WIRE_VERSION = 4
"""Raised when a message's parts or values change their names, types or meaning."""

WIRE, TOOLKIT, SETTINGS = "wire", "toolkit", "settings"


def agreement(settings: str) -> dict[str, Any]:
    """Return what a message says of its sender, given the digest of the sender's settings."""
    return {WIRE: WIRE_VERSION, TOOLKIT: __version__, SETTINGS: settings}


def agreed_settings(meta: Mapping[str, Any]) -> str:
    """Return the digest of the sender's settings.

    Raises:
        WireError: the message is of another version of the format or of the toolkit, or says nothing of its settings.
    """
    wire, toolkit, settings = meta.get(WIRE), meta.get(TOOLKIT), meta.get(SETTINGS)
    if type(wire) is not int or not isinstance(toolkit, str) or not re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", toolkit):
        raise WireError("it does not say which version of fedmr_med it comes from", code="wire.form", key="toolkit")
    if wire != WIRE_VERSION or _minor(toolkit) != _minor(__version__):
        raise WireError(
            f"it comes from fedmr_med {toolkit} (wire format {min(wire, 10**6)}), and this is {__version__} "
            f"({WIRE_VERSION}); install the same version everywhere",
            code="wire.version",
        )
    if not isinstance(settings, str) or not re.fullmatch(r"[0-9a-f]{16}", settings):
        raise WireError("it does not say which settings it was made with", code="wire.form", key="settings")
    return settings


def check_settings(theirs: str, own: str) -> None:
    """Raise WireError unless a message was made with one's own settings."""
    if theirs != own:
        raise WireError(
            f"it was made with other settings of the job ({theirs}) than there are here ({own})", code="wire.settings"
        )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
