"""FLamby's bar plot: one bar per method and test set, with the spread over the seeds."""

from collections.abc import Iterable
from pathlib import Path

from fedmr_med.lab.comparison.spread import Spread
from fedmr_med.lab.flamby.results import Row


def bar_plot(rows: Iterable[Row], path: Path, *, title: str) -> None:
    """Draw the rows of a comparison into a PNG.

    Args:
        rows: at least one.
        path: the file to write.
        title: what was compared.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        label = row.method if row.source == "ours" else f"{row.method} ({row.source})"
        name = label if row.bn == "own" else f"{label}, BN {row.bn}"
        groups.setdefault(name, {}).setdefault(row.test, []).append(row.balanced_accuracy)
    tests = list(dict.fromkeys(test for scores in groups.values() for test in scores))
    figure, axes = pyplot.subplots(figsize=(2 + 1.3 * len(tests), 4), layout="constrained")
    width = 0.8 / len(groups)
    for number, (name, scores) in enumerate(groups.items()):
        spreads = [Spread.of(scores[test]) if test in scores else None for test in tests]
        places = [place + (number + 0.5) * width - 0.4 for place in range(len(tests))]
        heights = [0.0 if spread is None else spread.mean for spread in spreads]
        errors = [0.0 if spread is None else spread.deviation or 0.0 for spread in spreads]
        axes.bar(places, heights, width, yerr=errors, label=name)
    axes.set_xticks(range(len(tests)), tests, rotation=30, ha="right")
    axes.set_ylabel("balanced accuracy")
    axes.set_ylim(0, 1)
    axes.set_title(title)
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
