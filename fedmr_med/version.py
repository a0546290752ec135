"""The version of the toolkit, where nothing else is imported with it."""

__version__ = "0.1.0"
"""As in pyproject.toml; messages between server and sites carry it."""
