"""Files to start from: the project of a federation, and a folder per hospital of Fed-ISIC2019."""

from pathlib import Path

from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text

_TEMPLATES = Path(__file__).parents[1] / "templates"  # links into the repository; a wheel holds the files themselves
_PLACES = {"project.yml": Path("provisioning")}


def write_templates(folder: Path) -> list[Path]:
    """Write the files below a folder, where the commands look for them, and return their paths.

    Raises:
        ConfigError: one of them is there already.
    """
    sources = [_TEMPLATES / "project.yml", *sorted((_TEMPLATES / "sites").glob("*/site.yaml"))]
    relative = [path.relative_to(_TEMPLATES) for path in sources]
    targets = [folder / _PLACES.get(str(path), Path()) / path for path in relative]
    for target in targets:
        if target.exists():
            raise ConfigError(f"{target} is there already; name an empty folder.", code="file.foreign", key="FOLDER")
    for source, target in zip(sources, targets, strict=True):
        write_text(target, source.read_text(encoding="utf-8"))
    return targets
