"""The findings of an audit as text, for the terminal."""

from fedmr_med.privacy.findings import Audit

_NAME, _CELL = 40, 14


def audit_lines(audit: Audit) -> list[str]:
    """Return the table of attacks and defences, and that of prototypes by the number of their images."""
    lines = [f"{audit.site}: {audit.images[0]} training and {audit.images[1]} test images; {audit.trained}."]
    lines += [noise_line(audit), "", _row("success of an attack, 0 to 1", audit.defences)]
    lines += [
        _row(attack, [f"{audit.success(attack, defence):.2f}" for defence in audit.defences])
        for attack in audit.attacks
    ]
    if audit.sizes:
        lines += ["", _row("prototype of so many images, no defence", ("nearest", "membership", "inversion"))]
    for size in audit.sizes:
        inversion = "-" if size.inversion is None else f"{size.inversion:.2f}"
        lines.append(_row(f"{size.images}", [f"{size.nearest:.2f}", f"{size.membership:.2f}", inversion]))
    return lines


def noise_line(audit: Audit) -> str:
    """Say the noise, and what one release with it costs."""
    cost = "" if audit.epsilon is None else f", epsilon {audit.epsilon:.2f} for one release at delta 1e-5"
    return f"Noise of {audit.noise:g} times what one image can change{cost}."


def _row(name: str, cells: tuple[str, ...] | list[str]) -> str:
    return f"{name:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
