"""``fedmr-med site policy``: what a hospital shares. The options of ``set`` are the keys of the schema."""

from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fedmr_med.cli.deploy import KIT_VARIABLE
from fedmr_med.cli.options import Json, answer
from fedmr_med.errors import PolicyError

if TYPE_CHECKING:
    from fedmr_med.config import JobConfig
    from fedmr_med.schema.keys import Key

Kit = Annotated[Path, typer.Option(envvar=KIT_VARIABLE, help="The hospital's startup kit.")]
Job = Annotated[Path | None, typer.Option(help="Job folder to prepare for; default: Fed-ISIC2019 with FedMR.")]


_IN_FORCE = (
    "The running client keeps to it: what became stricter since it started is in force from the next reply on, what "
    "became looser from the next job on."
)
_RESTART = "Restart the client now: until then FLARE's part of it runs with the settings it started with."


class PolicyGroup(TyperGroup):
    """Makes ``set`` when somebody asks for it: other commands do not wait for the schema to load."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), "set"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name."""
        return _set_command() if cmd_name == "set" else super().get_command(ctx, cmd_name)


app = typer.Typer(no_args_is_help=True, cls=PolicyGroup)


@app.command()
def show(kit: Kit = Path(), as_json: Json = False) -> None:
    """Print the policy in force, and whether the running client has it."""
    from fedmr_med.deploy.health import stale_client
    from fedmr_med.deploy.kit import site_settings
    from fedmr_med.sites import SITE_FILE

    values, stale = site_settings(kit).policy.model_dump(mode="json"), stale_client(kit)
    lines = [f"{name}: {value}" for name, value in values.items()]
    answer(as_json, {"policy": values, "restart_needed": stale is not None}, *lines)
    if stale and not as_json:
        typer.echo(_IN_FORCE if stale.files == (SITE_FILE,) else f"NOT ACTIVE YET: {stale}", err=True)


@app.command()
def explain(kit: Kit = Path(), as_json: Json = False) -> None:
    """Say in plain sentences what leaves this hospital."""
    from fedmr_med.deploy.kit import site_settings
    from fedmr_med.privacy.explain import explain as sentences

    lines = sentences(site_settings(kit).policy)
    answer(as_json, {"sentences": lines}, *lines)


def change(kit: Kit = Path(), job: Job = None, as_json: Json = False, **given: Any) -> None:
    """Change the policy. It counts for executor, filter and guard; the client has to be restarted."""
    from fedmr_med.deploy.health import running_clients
    from fedmr_med.deploy.site_policy import set_policy
    from fedmr_med.privacy.explain import explain as sentences
    from fedmr_med.privacy.policy import SitePolicy
    from fedmr_med.schema.keys import keys

    # What was not given is None, or no values of a section.
    changes = {key.name: _read(key, given[key.name]) for key in keys(SitePolicy) if given[key.name] not in (None, [])}
    if not changes:
        raise PolicyError(
            "Nothing to set; name at least one of " + ", ".join(f"--{name.replace('_', '-')}" for name in given),
            code="config.missing",
        )
    policy = set_policy(kit, changes, job_of(job).task.class_names)
    restart = bool(running_clients(kit))
    answer(
        as_json,
        {"policy": policy.model_dump(mode="json"), "restart_needed": restart},
        *sentences(policy),
        "What became stricter counts from the next reply on; what became looser, from the next job on.",
        *([_RESTART] if restart else []),
    )


def job_of(folder: Path | None) -> "JobConfig":
    """Return the job in a folder; without one, Fed-ISIC2019 with FedMR."""
    from fedmr_med.config import JOB_FILE, load_job
    from fedmr_med.jobs.catalog import isic_job

    return isic_job("fedmr") if folder is None else load_job(folder / "app" / "config" / JOB_FILE)


def _set_command() -> Any:
    """Return ``set`` with an option for every key of the policy."""
    from fedmr_med.privacy.policy import SitePolicy
    from fedmr_med.schema.keys import keys

    def command(**options: Any) -> None:
        change(**options)

    fixed = [option for option in signature(change).parameters.values() if option.kind != Parameter.VAR_KEYWORD]
    options = [
        Parameter(key.name, Parameter.KEYWORD_ONLY, default=None, annotation=_option(key)) for key in keys(SitePolicy)
    ]
    command.__signature__ = signature(change).replace(parameters=[*fixed, *options])  # type: ignore[attr-defined]
    group = typer.Typer(add_completion=False)
    group.command("set", help=change.__doc__)(command)
    return typer.main.get_command(group)


def _option(key: "Key") -> Any:
    """Return the type of a key's option: yes or no, a word, or several KEY=VALUE for a section."""
    if key.sections:
        return Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=f"{key.hint} May be repeated.")]
    if key.kinds == (bool,):
        return Annotated[bool | None, typer.Option(help=key.hint)]
    return Annotated[str | None, typer.Option(metavar=key.values.replace("`", ""), help=key.hint)]


def _read(key: "Key", given: Any) -> Any:
    """Return the value of an option as the schema takes it.

    Raises:
        PolicyError: a part of a section is not of the form KEY=VALUE.
    """
    from fedmr_med.schema.keys import keys

    if isinstance(given, str):
        return key.read(given)
    if not key.sections:
        return given
    if len(given) == 1 and key.read(given[0]) is None:
        return None
    known = {part.name: part for part in keys(key.sections[0])}
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            option = f"--{key.name.replace('_', '-')}"
            raise PolicyError(
                f"{option} takes KEY=VALUE, of {', '.join(known)}; not {text}.", code="config.value", key=option
            )
        values[name] = known[name].read(value) if name in known else value
    return values
