"""``fedmr-med monitor``: whether a model that is in use meets other images than before."""

from datetime import datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmr_med.cli.model import JournalFile, Model
from fedmr_med.cli.options import Json, answer

if TYPE_CHECKING:
    from fedmr_med.evaluation.drift import Change
    from fedmr_med.evaluation.usage import Summary

app = typer.Typer(no_args_is_help=True)

Summaries = Annotated[list[Path], typer.Argument(help="Summaries, of one hospital each or of several.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="The summary to write.")]
_DAY = ["%Y-%m-%d"]


@app.command()
def summarize(
    model: Model,
    since: Annotated[datetime, typer.Option(formats=_DAY, help="The first day, in UTC.")],
    until: Annotated[datetime, typer.Option(formats=_DAY, help="The last day, in UTC; it counts too.")],
    out: Out = Path("use.json"),
    site: Annotated[str, typer.Option(help="What the summary calls this hospital.")] = "here",
    policy: Annotated[
        Path | None,
        typer.Option(
            help="The hospital's site.yaml, whose rule of small cells holds; default: no number from 1 to 10."
        ),
    ] = None,
    use: Annotated[str, typer.Option(help="The answers to count: of predict, or of evaluate.")] = "predict",
    journal: JournalFile = None,
    head: Annotated[str | None, typer.Option(help="A head noted earlier: its line must still be there.")] = None,
    as_json: Json = False,
) -> None:
    """Count what a model answered in a period, from this hospital's journal, so that hospitals can be added up."""
    from fedmr_med.errors import ConfigError
    from fedmr_med.evaluation.results import versioned, write_result
    from fedmr_med.inference.journal import Period, UseJournal
    from fedmr_med.models.model_file import load_model, sha256_of
    from fedmr_med.privacy.policy import SitePolicy
    from fedmr_med.registry import check_known
    from fedmr_med.schema import check_name
    from fedmr_med.sites import load_site

    check_known(use, ("predict", "evaluate"), "--use")
    check_name(site, "--site")
    if until < since:
        raise ConfigError("--until is before --since.", code="config.value", key="--until")
    least = (SitePolicy() if policy is None else load_site(policy).policy).least_tested
    names = load_model(model, allow_code=True).job.task.class_names  # which builds no network
    period = Period(sha256_of(model), use, since.date(), until.date())  # type: ignore[arg-type]
    place = UseJournal.at(journal)
    found, known = place.summary(period, names, site, least=least, head=head)
    write_result(out, found)
    usage = found.usage[site]
    held = [name for name, count in (usage.answers | usage.confidence).items() if count is None]
    answer(
        as_json,
        {"summary": str(out), "head": known} | versioned(found),
        f"{usage.images} images: " + ", ".join(f"{name} {n}" for name, n in usage.answers.items() if n is not None),
        *([f"held back, below {least} or so that nobody can subtract: {', '.join(held)}"] if held else []),
        f"summary: {out}; journal: {place.path}, head {known}",
    )


@app.command("add")
def add_up(summaries: Summaries, out: Out = Path("use.json"), as_json: Json = False) -> None:
    """Add up summaries of several hospitals or periods, such as those that a reference is made of."""
    from fedmr_med.evaluation.results import versioned, write_result

    total = _total(summaries)
    write_result(out, total)
    said = ", ".join(f"{site} {usage.images} images" for site, usage in total.usage.items())
    answer(as_json, {"summary": str(out)} | versioned(total), f"{said}: {out}")


@app.command()
def compare(
    reference: Annotated[Path, typer.Argument(help="The summary of the period to compare with.")],
    summaries: Summaries,
    false_alarms: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="The share of unchanged months in which there may be an alarm.")
    ] = 0.01,
    least: Annotated[float, typer.Option(min=0, help="The PSI up to which there is none, however many images.")] = 0.1,
    images_per_patient: Annotated[
        float, typer.Option(min=1, help="How many images a patient has: they go together.")
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Say whether answers or confidence moved since a reference period; exit code 1 if they did."""
    from fedmr_med.evaluation.drift import changes

    before, after = _total([reference]), _total(summaries)
    found = changes(before, after, false_alarms=false_alarms, least=least, images_per_patient=images_per_patient)
    alarm, alone = any(change.alarm for change in found), sorted(before.usage.keys() ^ after.usage.keys())
    answer(
        as_json,
        {"alarm": alarm, "changes": [change.model_dump(mode="json") for change in found], "not_compared": alone},
        *map(_line, found),
        *(f"     {site}: only in {'the reference' if site in before.usage else 'this period'}" for site in alone),
    )
    if alarm:
        raise typer.Exit(1)


def _line(change: "Change") -> str:
    moved = (
        "" if change.moved is None else f"; most: {change.moved}, {change.before:.0%} before, {change.after:.0%} now"
    )
    said = f"PSI {change.psi:.3f}, alarm above {change.threshold:.3f}, {change.images} images{moved}"
    return f"{'ALARM' if change.alarm else 'ok   '} {change.site:<18} {change.of:<10} {said}"


def _total(paths: list[Path]) -> "Summary":
    from fedmr_med.evaluation.results import read_result
    from fedmr_med.evaluation.usage import Summary

    return reduce(add, [read_result(path, Summary) for path in paths])
