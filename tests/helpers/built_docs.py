"""``python -m tests.helpers.built_docs FOLDER``: look at the built documentation; exit code 1 names what is wrong."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.helpers import REPOSITORY


def faults(site: Path) -> Iterator[str]:
    """Return what is wrong with the pages in a folder."""
    packages = {path.parent.name for path in (REPOSITORY / "fedmr_med").glob("*/__init__.py")}
    for name in sorted(packages - {path.stem for path in (site / "api").glob("*.html")}):
        yield f"the package {name} has no page"
    if "Keep a margin to the global prototypes" not in (site / "api" / "modules.html").read_text():
        yield "the API pages lack the docstrings"
    if "fedmr-med deploy provision" not in (site / "commands.html").read_text():
        yield "the page of commands lacks the commands"
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # a server's page, whose links begin at its root
            continue
        page = path.read_text(encoding="utf-8")
        if ":func:<" in page or ":class:<" in page:
            yield f"{path.relative_to(site)} has a role that Markdown does not know"
        if 'src="http' in page:
            yield f"{path.relative_to(site)} loads a script or a picture from elsewhere"
        for target in re.findall(r'<a [^>]*href="([^"#:]+)[#"]', page):
            if not (path.parent / target).is_file():
                yield f"{path.relative_to(site)} links to {target}, which is no file to open"


def main(folder: str) -> int:
    """Print the faults; return 1 if there are any."""
    lines = list(faults(Path(folder)))
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
