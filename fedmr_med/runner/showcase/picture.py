"""The picture of the claim: where the model that a hospital ends with puts the test pictures."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from fedmr_med.evaluation.clinical import softmax
from fedmr_med.runner.showcase.plan import CLASSES
from fedmr_med.runner.showcase.work import Outcome, holds, recalls
from fedmr_med.seeding import numpy_generator

_SIZE, _TOP, _BOTTOM, _GAP = 330, 50, 74, 14
_RADIUS = 108
_SPREAD = 6.0  # of the dots at one place, in pixels

# Its own colors, so that it looks the same as a file and in a page; names of its own, for a page has others.
_STYLE = """
.claim{--c-page:#fff;--c-ink:#1d2530;--c-soft:#56616f;--c-rule:#d8dee6;--c-own:#0b66c3;--c-miss:#d9480f}
@media(prefers-color-scheme:dark){.claim{--c-page:#14181e;--c-ink:#e6eaf0;--c-soft:#a3afbd;--c-rule:#333c48;
--c-own:#6cb2ff;--c-miss:#ff9a5c}}
.claim rect{fill:var(--c-page)}.claim .ring{fill:none;stroke:var(--c-rule)}
.claim text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--c-soft);text-anchor:middle}
.claim .head{font-size:19px;font-weight:600;fill:var(--c-ink)}.claim .own{fill:var(--c-own)}
.claim .miss{fill:var(--c-miss)}.claim text.own,.claim text.miss{font-weight:600}
.claim circle.own,.claim circle.miss{fill-opacity:.75}.claim .big{font-size:15px}
"""


def claim_picture(outcomes: Sequence[Outcome], hospital: str) -> Markup:
    """Draw one panel for each outcome, side by side; the classes of a hospital are told from those that it lacks.

    A dot is a test picture. It lies between the corners of the classes by the probabilities that the last model gives
    them, so at the corner of the class that the model is sure of.
    """
    width = len(outcomes) * _SIZE + (len(outcomes) - 1) * _GAP
    height = _TOP + _SIZE + _BOTTOM
    panels = [
        Markup('<g transform="translate({} 0)">{}</g>').format(number * (_SIZE + _GAP), _drawn(outcome, hospital))
        for number, outcome in enumerate(outcomes)
    ]
    return _picture("The model that one hospital ends with", width, height, outcomes, hospital, Markup("").join(panels))


def panel(outcome: Outcome, hospital: str) -> Markup:
    """Draw one panel as a picture of its own, for a page that puts them beside or below each other."""
    title = f"{outcome.run.label}: the model that {hospital} ends with"
    return _picture(title, _SIZE, _TOP + _SIZE + _BOTTOM, [outcome], hospital, _drawn(outcome, hospital))


def _picture(
    title: str, width: int, height: int, outcomes: Sequence[Outcome], hospital: str, content: Markup
) -> Markup:
    known = holds(hospital)
    shares = [f"{outcome.run.label} {100 * recalls(outcome)[~known].mean():.0f} %" for outcome in outcomes]
    said = f"Test pictures of classes that the hospital has never seen, recognized: {', '.join(shares)}."
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" class="claim" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<desc>{}</desc><style>{}</style><rect width="{}" height="{}"/>{}</svg>'
    ).format(width, height, title, said, Markup(_STYLE), width, height, content)


def _drawn(outcome: Outcome, hospital: str) -> Markup:
    known, found = holds(hospital), recalls(outcome)
    middle = np.array([_SIZE / 2, _TOP + _SIZE / 2])
    parts = [
        Markup('<text class="head" x="{}" y="30">{}</text>').format(middle[0], outcome.run.label),
        Markup('<circle class="ring" cx="{}" cy="{}" r="{}"/>').format(*middle, _RADIUS),
    ]
    for label, name in enumerate(CLASSES):
        x, y = (_RADIUS + 36) * _corner(label) + middle
        parts.append(
            Markup('<text class="{}" x="{:.0f}" y="{:.0f}">{}</text>').format(_kind(known[label]), x, y + 5, name)
        )
    answers = outcome.answers.argmax(1)
    for (x, y), label, answer in zip(_RADIUS * _places(outcome.answers) + middle, outcome.labels, answers, strict=True):
        hover = f"{CLASSES[label]}, {'recognized' if answer == label else f'called {CLASSES[answer]}'}"
        parts.append(
            Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="3.2"><title>{}</title></circle>').format(
                _kind(known[label]), x, y, hover)
        )  # fmt: skip
    below = _TOP + _SIZE + 22
    for line, (own, which) in enumerate(((True, "holds"), (False, "never saw"))):
        share = 100 * found[known == own].mean()
        parts.append(
            Markup('<text class="{} big" x="{}" y="{}">classes it {}: {:.0f} % right</text>').format(
                _kind(own), middle[0], below + 26 * line, which, share)
        )  # fmt: skip
    return Markup("").join(parts)


def _kind(own: bool) -> str:
    return "own" if own else "miss"


def _corner(label: int) -> npt.NDArray[np.float64]:
    angle = 2 * math.pi * label / len(CLASSES) - math.pi / 2
    return np.array([math.cos(angle), math.sin(angle)])


def _places(answers: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return where in the unit circle logits (n, C) put their pictures, (n, 2)."""
    corners = np.stack([_corner(label) for label in range(answers.shape[1])])
    apart = numpy_generator("claim").normal(0, _SPREAD / _RADIUS, (len(answers), 2))
    places: npt.NDArray[np.float64] = softmax(answers.astype(np.float64)) @ corners + apart
    return places
