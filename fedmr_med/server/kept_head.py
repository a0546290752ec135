"""What a chain keeps of its closed-form head: the statistics it is made of, one file for each site.

With secure sums it is one file, of their total. The checkpoint says which files count (``HeadRecord.kept``) by names
that are drawn, so a file is never changed and a crash between file and checkpoint leaves the old ones in force. Files
that no checkpoint names are deleted. That is also how a site's file goes when it leaves.
"""

import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from fedmr_med.errors import CheckpointError
from fedmr_med.models.model_file import FORMAT, as_arrays, as_tensors, read_tensors, write_tensors
from fedmr_med.schema import brief
from fedmr_med.wire.codec import Message

TOTAL = "total"
"""Whose file the total of a secure sum is."""


class KeptHead:
    """The files of one chain, in ``folder``."""

    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def of(cls, chain: Path) -> "KeptHead":
        """Return the files of the chain in a folder."""
        return cls(chain / "head")

    def write(self, site: str, message: Message) -> str:
        """Keep what a site sent; return the name of the file.

        Raises:
            CheckpointError: it could not be written.
        """
        name = secrets.token_hex(16)
        parts = {part: as_tensors(arrays) for part, arrays in message.parts.items()}
        content = {"format": FORMAT, "name": name, "site": site, "parts": parts, "meta": dict(message.meta)}
        write_tensors(self._file(name), content)
        return name

    def read(self, site: str, name: str) -> Message:
        """Return what a site sent; whoever uses it checks it again.

        Raises:
            CheckpointError: the file is missing, damaged, or another one.
        """
        path = self._file(name)
        content = read_tensors(path)
        try:
            if content.keys() != {"format", "name", "site", "parts", "meta"}:
                raise ValueError("unknown keys")
            if (content["name"], content["site"]) != (name, site):
                raise ValueError(f"it is of {content['site']}")
            return Message({part: as_arrays(arrays) for part, arrays in content["parts"].items()}, content["meta"])
        except (TypeError, ValueError, AttributeError) as e:
            raise CheckpointError(
                f"{path} does not hold the statistics of {site} ({brief(e)}).", code="checkpoint.form"
            ) from e

    def read_all(self, names: Mapping[str, str], but: Collection[str] = ()) -> dict[str, Message]:
        """Return what the sites sent, without some of them.

        Raises:
            CheckpointError: see :meth:`read`.
        """
        return {site: self.read(site, name) for site, name in sorted(names.items()) if site not in but}

    def prune(self, names: Collection[str]) -> None:
        """Delete all files but these."""
        for path in self.folder.glob("*.pt") if self.folder.is_dir() else ():
            if path.stem not in names:
                path.unlink()

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.pt"
