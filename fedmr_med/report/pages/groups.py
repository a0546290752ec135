"""Who the model serves worse: by column of the hospitals' tables, and what a new hospital may expect."""

from fedmr_med.evaluation.score import Evaluation, Subgroup
from fedmr_med.report.elements import HELD_BACK, NONE, Section, bullets, note, number, paragraph, table
from fedmr_med.report.sources import ChainRun

_HEADS = ("test images", "mean recall (95 % interval)", "over", "against all", "AUROC, mean", "hospitals")


def subgroups(run: ChainRun) -> Section | None:
    """Return the scores of each level of each column, and the level that is served worst."""
    final = run.final
    scored = [evaluation for evaluation in run.scored if evaluation.subgroups]
    if final is None or not scored:
        return None
    chosen = final if final.subgroups else scored[-1]
    other = (
        f"Of the model after round {chosen.round}, the last: hospitals score no other one by subgroup in training. "
        "`fedmr-med evaluate MODEL --job` scores the one that is kept."
    )
    tables = [
        table(f"Scores by {column}", (column, *_HEADS), [(level, *_cells(found)) for level, found in levels.items()])
        for column, levels in chosen.subgroups.items()
    ]
    return Section.of(
        "subgroups",
        "Subgroup by subgroup",
        note(other) if chosen is not final else None,
        bullets(worst(chosen)),
        *tables,
        paragraph(
            "Against all: the difference to the mean recall of all images, over the classes that the level has. Held "
            "back: few images, right answers or wrong ones, or so few are left of the total that they would follow "
            "from it; or share_subgroups of the hospitals' policies."
        ),
    )


def between(run: ChainRun) -> Section | None:
    """Return how far hospitals differ, and the interval in which a new one is expected."""
    chosen = run.final
    if chosen is None or not chosen.between:
        return None
    rows = []
    for one in chosen.between:
        name = f"{run.classes[one.label]}, {one.name}"
        expected = f"{one.low:.3f} to {one.high:.3f}"
        rows.append((name, str(one.sites), number(one.mean), number(one.deviation, 2), expected))
    heads = ("class", "hospitals", "typical hospital", "deviation between hospitals (log-odds)", "a new hospital, 95 %")
    said = (
        "A random-effects meta-analysis of the hospitals' figures on the scale of log-odds. In 95 of 100 cases the "
        "figure of a new hospital like these is expected in the last column; with few hospitals it is wide."
    )
    values = table("Between hospitals", heads, rows)
    return Section.of("between", "What a new hospital may expect", bullets(worst_site(chosen)), values, paragraph(said))


def worst(evaluation: Evaluation) -> list[str]:
    """Say which level of each column is served worst."""
    return [
        f"By {column} the model serves {level} worst: its mean recall is {-value:.3f} below that of all images, over "
        "the classes that it has."
        for column, (level, value) in evaluation.worst_levels.items()
    ]


def worst_site(evaluation: Evaluation) -> list[str]:
    """Say which hospital is served worst."""
    return [
        f"The model serves {site} worst: its mean recall is {-value:.3f} below that of all hospitals, over the classes "
        "that it tells."
        for site, value in filter(None, [evaluation.worst_site])
    ]


def _cells(found: Subgroup) -> tuple[str, ...]:
    if found.figures is None:
        return (HELD_BACK, *[NONE] * 5)
    figures = found.figures
    apart = NONE if found.apart is None else f"{found.apart:+.3f}"
    told = str(len(found.sites)) if found.sites else NONE
    return str(figures.samples), figures.recall, figures.coverage, apart, figures.text("auroc"), told
