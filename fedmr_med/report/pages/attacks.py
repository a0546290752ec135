"""How far attacks on a hospital's releases get, under each defence: the findings of ``fedmr-med privacy audit``."""

from collections.abc import Sequence

from markupsafe import Markup

from fedmr_med.privacy.explain import UPDATE_SPEAKS
from fedmr_med.privacy.findings import Audit
from fedmr_med.report.elements import Section, figure, number, paragraph, shaded, table
from fedmr_med.report.svg import lines

_NAME, _CELL = 40, 14  # widths in the terminal
_BY_SIZE = ("nearest", "membership", "inversion")


def page(audit: Audit) -> Section:
    """Return what gets furthest, the map of attacks and defences, and prototypes by the number of their images."""
    train, test = audit.images
    cohort = f" The secure total is of it, {', '.join(audit.cohort)}." if audit.cohort else ""
    worst = [audit.worst(defence) for defence in audit.defences]
    furthest = [(finding.defence, finding.attack, number(finding.success, 2)) for finding in worst]
    successes = []
    for attack in audit.attacks:
        values = [audit.success(attack, defence) for defence in audit.defences]
        successes.append((attack, *(shaded(number(v, 2), "miss", v if v >= 0.005 else 0) for v in values)))
    title = "Success of each attack against each defence, from 0, nothing or chance, to 1"
    return Section.of(
        "attacks",
        f"Attacks on what {audit.site} would release",
        paragraph(f"{audit.site}: {train} training and {test} test images; {audit.trained}.{cohort}"),
        table("What gets furthest against each defence", ("defence", "attack", "success"), furthest),
        table(title, ("attack", *audit.defences), successes),
        _sizes(audit) if audit.sizes else None,
        paragraph(f"{noise_line(audit)} An attack that fails proves nothing; one that succeeds does."),
        paragraph(UPDATE_SPEAKS),
    )


def _sizes(audit: Audit) -> Markup:
    title = "Prototypes of so many images of one class, without a defence"
    series = {
        "nearest image match": [(float(size.images), size.nearest) for size in audit.sizes],
        "membership by prototype": [(float(size.images), size.membership) for size in audit.sizes],
    }
    looked = [(float(size.images), size.inversion) for size in audit.sizes if size.inversion is not None]
    series |= {"inversion of a prototype": looked} if looked else {}
    chart = lines(title, series, xlabel="images in the prototype", ylabel="success", yrange=(0, 1))
    return figure(chart, title, table(title, ("images", *_BY_SIZE), _size_rows(audit)), names=list(series))


def _size_rows(audit: Audit) -> list[tuple[str, ...]]:
    return [(str(s.images), number(s.nearest, 2), number(s.membership, 2), number(s.inversion, 2)) for s in audit.sizes]


def audit_lines(audit: Audit) -> list[str]:
    """Return the table of attacks and defences, and that of prototypes by the number of their images."""
    lines = [f"{audit.site}: {audit.images[0]} training and {audit.images[1]} test images; {audit.trained}."]
    lines += [noise_line(audit), "", _row("success of an attack, 0 to 1", audit.defences)]
    for attack in audit.attacks:
        lines.append(_row(attack, [number(audit.success(attack, defence), 2) for defence in audit.defences]))
    if audit.sizes:
        lines += ["", _row("prototype of so many images, no defence", _BY_SIZE)]
    return lines + [_row(size, cells) for size, *cells in _size_rows(audit)]


def noise_line(audit: Audit) -> str:
    """Say the noise, and what one release with it costs."""
    cost = "" if audit.epsilon is None else f", epsilon {audit.epsilon:.2f} for one release at delta 1e-5"
    return f"Noise of {audit.noise:g} times what one image can change{cost}."


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
