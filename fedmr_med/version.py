"""The version of the toolkit, where nothing else is imported with it."""

__version__ = "0.1.0"
"""As in pyproject.toml; messages between server and sites carry it."""

PACKAGES = ("fedmr-med", "torch", "nvflare", "monai", "numpy")
"""Whose versions a result depends on."""


def installed() -> dict[str, str]:
    """Return the version of each of :data:`PACKAGES` that is installed."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
