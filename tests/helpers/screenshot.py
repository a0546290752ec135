"""``python -m tests.helpers.screenshot PAGE PNG``: what Chromium shows of the upper part of a page."""

import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.helpers.browser import browser

WIDTH, HEIGHT, COLORS = 1100, 820, 128


def main(page: Path, picture: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browser(Path(profile)) as chromium:
        chromium.open(page)
        chromium.show(width=WIDTH)
        chromium.screenshot(picture, height=HEIGHT)
    Image.open(picture).convert("RGB").quantize(COLORS).save(picture, optimize=True)  # a third of its size


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
