"""What a hospital's labels mean: its ``classes`` say so, and no job gives them another meaning."""

from collections.abc import Sequence

from fedmr_med.privacy.refusals import ClassNamesError
from fedmr_med.sites import SiteConfig


def check_classes(site: SiteConfig, class_names: Sequence[str]) -> None:
    """Compare a job's class names with the hospital's own.

    Raises:
        ClassNamesError: the job renames, leaves out or reorders classes so that a label would mean something else.
    """
    own = site.classes
    if isinstance(own, tuple) and own != tuple(class_names):
        raise ClassNamesError(
            f"task.class_names of the job is {', '.join(class_names)}; classes is {', '.join(own)}.",
            code="policy.class-names",
            key="task.class_names",
        )
    if isinstance(own, dict) and (missing := sorted(set(own.values()) - set(class_names))):
        raise ClassNamesError(
            f"task.class_names of the job lacks {missing[0]!r}, which classes has.",
            code="policy.class-names",
            key="task.class_names",
        )


def labels_of(site: SiteConfig, class_names: Sequence[str]) -> dict[str, int]:
    """Return the job's class number of each label of the hospital's table; raises as :func:`check_classes` does."""
    check_classes(site, class_names)
    names = {name: number for number, name in enumerate(class_names)}
    if isinstance(site.classes, dict):
        return {label: names[name] for label, name in site.classes.items()}
    numbers = {str(number): number for number in range(len(class_names))}
    named = isinstance(site.policy.share_prototypes, tuple)
    # The policy goes by names: a number must not get its name from the job then.
    return names if named and site.classes is None else numbers | names
