"""Packages outside the repository, as an installer would leave them: modules and the metadata of their entry points."""

from collections.abc import Mapping
from pathlib import Path


def write_package(
    folder: Path, name: str, modules: Mapping[str, str], entries: Mapping[str, Mapping[str, str]]
) -> None:
    """Write a package into ``folder``; whoever has the folder on his path has it installed.

    Args:
        folder: to be put on the path.
        name: of the package.
        modules: content of its modules by name.
        entries: entry points by group and name.
    """
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()) for group, points in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
