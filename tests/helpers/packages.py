"""Packages outside the repository, as an installer would leave them: a module and the metadata of its entry points."""

from collections.abc import Mapping
from pathlib import Path


def write_package(folder: Path, name: str, code: str, entries: Mapping[str, Mapping[str, str]]) -> None:
    """Write module ``name`` into ``folder``, installed by its metadata for whoever has ``folder`` on his path.

    Args:
        folder: to be put on the path.
        name: of the module; the package has the same with dashes.
        code: the module's content.
        entries: entry points by group and name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()) for group, points in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
