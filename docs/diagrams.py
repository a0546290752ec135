"""Draws the diagrams of the guides: ``python docs/diagrams.py`` writes them into docs/pictures.

A diagram is boxes on a grid and arrows between them. Its background is white, so that it can be read on a dark page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
COLUMN, ROW, LINE, MARGIN = 190, 84, 17, 16
COLORS = {"hospital": "#d9ead3", "server": "#cfe2f3", "file": "#f3f3f3", "person": "#fff2cc"}


@dataclass(frozen=True)
class Box:
    """A box at a column and row of the grid; its first line is bold. ``kind`` is a key of :data:`COLORS`."""

    x: float
    y: float
    kind: str
    text: str

    @property
    def size(self) -> tuple[float, float]:
        """Half of its width and height."""
        lines = self.text.split("\n")
        return max(3.9 * max(map(len, lines)) + 10, 48), (LINE * len(lines) + 14) / 2

    @property
    def center(self) -> tuple[float, float]:
        """Its place in the picture, before the picture is moved to its margins."""
        return self.x * COLUMN, self.y * ROW


@dataclass(frozen=True)
class Diagram:
    """Boxes by name, arrows from one to another with what is beside them, and what a screen reader says."""

    title: str
    boxes: Mapping[str, Box]
    arrows: Sequence[tuple[str, str, str]]

    def svg(self) -> str:
        """Return the picture."""
        sides = [(*box.center, *box.size) for box in self.boxes.values()]
        left, top = (min(side[axis] - side[axis + 2] for side in sides) - MARGIN for axis in (0, 1))
        right, bottom = (max(side[axis] + side[axis + 2] for side in sides) + MARGIN for axis in (0, 1))
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {top:g} {right - left:g} {bottom - top:g}" '
            f'width="{right - left:g}" role="img" font-family="sans-serif" font-size="13">',
            f"<title>{escape(self.title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
            f'<rect x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}" rx="8" fill="#fff"/>',
            *(self._arrow(*arrow) for arrow in self.arrows),
            *map(_drawn, self.boxes.values()),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _arrow(self, start: str, end: str, label: str) -> str:
        (x0, y0), (x1, y1) = _border(self.boxes[start], self.boxes[end]), _border(self.boxes[end], self.boxes[start])
        line = f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="#555" fill="none" marker-end="url(#tip)"/>'
        steps = (f'<tspan x="{(x0 + x1) / 2:.1f}" dy="{-4 if n == 0 else 14}">{escape(text)}</tspan>'
                 for n, text in enumerate(label.split("\n")))  # fmt: skip
        text = f'<text y="{(y0 + y1) / 2:.1f}" text-anchor="middle" font-size="11" fill="#333" stroke="#fff" '
        return line + (f'{text}stroke-width="4" paint-order="stroke">{"".join(steps)}</text>' if label else "")


def _border(box: Box, other: Box) -> tuple[float, float]:
    """Return where the line between the centers of two boxes leaves the first."""
    (x, y), (width, height) = box.center, box.size
    across, down = other.center[0] - x, other.center[1] - y
    part = min(width / abs(across) if across else 1e9, height / abs(down) if down else 1e9)
    return x + part * across, y + part * down


def _drawn(box: Box) -> str:
    (x, y), (width, height), lines = box.center, box.size, box.text.split("\n")
    first = y - LINE * (len(lines) - 1) / 2 + 4.5
    texts = []
    for number, text in enumerate(lines):
        weight = "normal" if number else "bold"
        place = f'x="{x:g}" y="{first + LINE * number:g}"'
        texts.append(f'<tspan {place} font-weight="{weight}">{escape(text)}</tspan>')
    return (
        f'<rect x="{x - width:g}" y="{y - height:g}" width="{2 * width:g}" height="{2 * height:g}" rx="6" '
        f'fill="{COLORS[box.kind]}" stroke="#888"/><text text-anchor="middle" fill="#111">{"".join(texts)}</text>'
    )


DIAGRAMS = {
    "own_images": Diagram(
        "From two folders of images to predictions: the six commands.",
        {
            "north": Box(0, 0, "hospital", "nord-klinik\na folder and a table"),
            "south": Box(0, 1, "hospital", "clinica-sur\na folder per class"),
            "manifest": Box(1.4, 0.5, "file", "manifest.csv, site.yaml\nin each folder"),
            "check": Box(2.6, 0.5, "person", "data check\nread, and repair"),
            "job": Box(3.6, 0.5, "file", "jobs/haut\njobs new"),
            "run": Box(3.6, 1.7, "server", "training\nnvflare simulator"),
            "model": Box(2.6, 1.7, "file", "best_model.pt\nreport.html"),
            "table": Box(1.4, 1.7, "file", "predictions.csv\npredict"),
        },
        [
            ("north", "manifest", "data manifest"),
            ("south", "manifest", ""),
            ("manifest", "check", ""),
            ("check", "job", ""),
            ("job", "run", ""),
            ("run", "model", ""),
            ("model", "table", ""),
        ],
    ),
    "survey": Diagram(
        "A survey: the server asks, each hospital counts and holds small numbers back, a page shows what is where.",
        {
            "server": Box(1.6, 0, "server", "server\nasks once, without a model"),
            "a": Box(0, 1.3, "hospital", "hospital A\nMEL 340, NV 900"),
            "b": Box(1.6, 1.3, "hospital", "hospital B\nNV 120, BCC 7: held back"),
            "c": Box(3.2, 1.3, "hospital", "hospital C\nshares no survey"),
            "page": Box(3.5, 0, "file", "report.html\nwhat is where, who is unlike"),
        },
        [
            ("a", "server", "numbers, sizes,\ncolors"),
            ("b", "server", "NV 120"),
            ("c", "server", "nothing"),
            ("server", "page", ""),
        ],
    ),
    "comparing_models": Diagram(
        "Two models see the same test images at each hospital; four numbers per class leave and are added up.",
        {
            "models": Box(0, 0.5, "file", "A.pt and B.pt\none network of two"),
            "north": Box(1.5, 0, "hospital", "hospital 1\nits test images"),
            "south": Box(1.5, 1, "hospital", "hospital 2\nits test images"),
            "sum": Box(3.2, 0.5, "server", "server\nadds the tables up"),
            "page": Box(4.7, 0.5, "file", "verdict\ndifference, interval, p"),
        },
        [
            ("models", "north", ""),
            ("models", "south", ""),
            ("north", "sum", "both, A alone,\nB alone, neither"),
            ("south", "sum", ""),
            ("sum", "page", ""),
        ],
    ),
    "subgroups": Diagram(
        "Scores by subgroup: a column of each table divides the test images, and scores of each level are added up.",
        {
            "table": Box(0, 0.5, "hospital", "each hospital\ncolumns sex, age, device"),
            "levels": Box(1.6, 0.5, "hospital", "test images by level\nfemale, male"),
            "policy": Box(1.6, 1.6, "person", "share_subgroups\nand small-cell rules"),
            "sum": Box(3.2, 0.5, "server", "server\nadds up by level"),
            "page": Box(4.8, 0.5, "file", "report and card\nworst level, worst hospital"),
        },
        [
            ("table", "levels", ""),
            ("policy", "levels", "what may leave"),
            ("levels", "sum", ""),
            ("sum", "page", ""),
        ],
    ),
    "runbook": Diagram(
        "The coordinator provisions kits and runs the server; hospitals write policies, check and approve.",
        {
            "provision": Box(0, 0, "person", "coordinator\ndeploy provision"),
            "server": Box(0, 1.3, "server", "server\nstartup/start.sh"),
            "lead": Box(0, 2.6, "person", "lead\ndeploy submit, watch, download"),
            "kit": Box(2.3, 0, "hospital", "hospital\nown site.yaml, site seal, site check"),
            "client": Box(2.3, 1.3, "hospital", "client\nstartup/start.sh"),
            "steward": Box(2.3, 2.6, "person", "data steward\nsite jobs --approve, site audit"),
        },
        [
            ("provision", "kit", "one signed kit each"),
            ("provision", "server", "the server's kit"),
            ("kit", "client", ""),
            ("client", "server", "connects, mutual TLS"),
            ("lead", "server", "a signed job"),
            ("steward", "client", "approves, and audits"),
        ],
    ),
    "leaving_and_joining": Diagram(
        "A closed-form head is made of a sum over hospitals: one is taken out, or a row for a new class is added.",
        {
            "a": Box(0, 0, "hospital", "hospital A"),
            "b": Box(0, 0.8, "hospital", "hospital B"),
            "c": Box(0, 1.6, "hospital", "hospital C\nleaves"),
            "d": Box(0, 2.6, "hospital", "hospital D\nbrings a new class"),
            "sum": Box(1.7, 1.1, "server", "sum of statistics\nkept at the server"),
            "head": Box(3.3, 1.1, "file", "head\nsolved anew, with its lineage"),
        },
        [
            ("a", "sum", "+"),
            ("b", "sum", "+"),
            ("c", "sum", "taken out"),
            ("d", "sum", "one more row"),
            ("sum", "head", ""),
        ],
    ),
    "relays": Diagram(
        "Hospitals behind a relay: they connect to the relay, and it holds one connection to the server.",
        {
            "server": Box(1.2, 0, "server", "server"),
            "relay": Box(0.5, 1.2, "server", "relay\nno data, no state"),
            "a": Box(0, 2.4, "hospital", "hospital A"),
            "b": Box(1, 2.4, "hospital", "hospital B"),
            "c": Box(2.2, 1.2, "hospital", "hospital C"),
        },
        [
            ("relay", "server", "mutual TLS"),
            ("a", "relay", "mutual TLS"),
            ("b", "relay", ""),
            ("c", "server", "mutual TLS"),
        ],
    ),
    "monitoring": Diagram(
        "Each hospital keeps a journal of what the model answered; counts of a month are compared with a reference.",
        {
            "a": Box(0, 0, "hospital", "hospital A\npredict, a line per image"),
            "b": Box(0, 1.2, "hospital", "hospital B\npredict, a line per image"),
            "mine": Box(1.7, 0, "file", "a.json\ncounts of 11 and more"),
            "theirs": Box(1.7, 1.2, "file", "b.json\ncounts of 11 and more"),
            "compare": Box(3.2, 0.6, "person", "monitor compare\nwith a reference"),
            "alarm": Box(4.5, 0.6, "file", "alarm, or none\nby hospital"),
        },
        [
            ("a", "mine", "summarize"),
            ("b", "theirs", "summarize"),
            ("mine", "compare", ""),
            ("theirs", "compare", ""),
            ("compare", "alarm", ""),
        ],
    ),
    "scaling": Diagram(
        "A comparison is a set of runs; a launcher does them here, as a Slurm job array, or on a Ray cluster.",
        {
            "bench": Box(0, 1, "person", "fedmr-med bench\nmethods, seeds, splits"),
            "local": Box(1.8, 0, "server", "local\na run per core"),
            "slurm": Box(1.8, 1, "server", "slurm\none job array"),
            "ray": Box(1.8, 2, "server", "ray\nany cluster"),
            "folder": Box(3.5, 1, "file", "--out FOLDER\na folder per run, resumes"),
        },
        [
            ("bench", "local", ""),
            ("bench", "slurm", "--launcher"),
            ("bench", "ray", ""),
            ("local", "folder", ""),
            ("slurm", "folder", ""),
            ("ray", "folder", ""),
        ],
    ),
    "transports": Diagram(
        "One loop over any transport: FLARE's tasks, Flower's grid, the in-process runner, or one of your own.",
        {
            "loop": Box(0, 1, "server", "the one loop\nplan, checks, sums, chain"),
            "flare": Box(1.9, 0, "file", "FLARE's tasks"),
            "flower": Box(1.9, 0.7, "file", "Flower's grid"),
            "runner": Box(1.9, 1.4, "file", "in-process runner"),
            "own": Box(1.9, 2.1, "file", "one of your own"),
            "site": Box(3.7, 1, "hospital", "a site\npolicy, approval, local round"),
        },
        [
            (start, end, "")
            for name in ("flare", "flower", "runner", "own")
            for start, end in (("loop", name), (name, "site"))
        ],
    ),
}

if __name__ == "__main__":
    for name, diagram in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(diagram.svg(), encoding="utf-8")
