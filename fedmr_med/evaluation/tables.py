"""Results as rows of plain values, such as ``pandas.DataFrame`` takes."""

from dataclasses import dataclass
from pathlib import Path

from fedmr_med.evaluation.results import RoundResult, RunResult, RunResults, read_result

Row = dict[str, str | float | None]


@dataclass(frozen=True)
class ResultTables:
    """A results file as two tables; every row has the same columns as the others.

    Attributes:
        runs: a row for each run: what it was, and its scores. Metrics with the closed-form head begin with ``head_``.
        rounds: a row for each round of each run: label, seed, scores, seconds and bytes.
    """

    runs: list[Row]
    rounds: list[Row]

    @classmethod
    def of(cls, results: RunResults) -> "ResultTables":
        """Take results apart."""
        rounds = [_of_round(run, record) for run in results.runs for record in run.rounds]
        return cls(_filled([_of_run(run) for run in results.runs]), _filled(rounds))


def load_results(path: Path | str) -> ResultTables:
    """Read ``results.json`` of a comparison, a run or the demo, or the one in a folder.

    Raises:
        ResultsError: it is missing or damaged, or another version of the toolkit wrote it.
    """
    path = Path(path)
    return ResultTables.of(read_result(path / "results.json" if path.is_dir() else path, RunResults))


def _of_run(run: RunResult) -> Row:
    scores: Row = {"last5_balanced_accuracy": run.last5_balanced_accuracy}
    return _plain(run) | scores | {f"head_{name}": value for name, value in run.head_metrics.items()}


def _of_round(run: RunResult, record: RoundResult) -> Row:
    named: Row = {"label": run.label or run.method, "seed": run.seed}
    return named | _plain(record) | record.metrics


def _plain(result: RunResult | RoundResult) -> Row:
    """Return the fields that are no lists or tables themselves."""
    values = ((name, getattr(result, name)) for name in type(result).model_fields)
    return {name: value for name, value in values if value is None or isinstance(value, str | int | float)}


def _filled(rows: list[Row]) -> list[Row]:
    """Return rows with the columns of all of them, without those that are None in each."""
    known = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return [{name: row.get(name) for name in known} for row in rows]
