"""From the arguments of a recipe, which are called as FLARE calls them, to a job and the settings of its sites."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.catalog import any_job, job_for, own_job
from fedmr_med.schema import dump_yaml, validated
from fedmr_med.sites import SITE_FILE, SiteConfig, load_site

Sites = Path | Sequence[str] | Mapping[str, SiteConfig | Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """What a recipe asks for; see :class:`fedmr_med.recipes.MethodRecipe`."""

    name: str
    method: str
    task: str | Mapping[str, Any]
    model: Any
    min_clients: int
    num_rounds: int
    method_options: Mapping[str, Any]
    loss: str | Mapping[str, Any] | None
    train: Mapping[str, Any]
    sites: Sites | None
    key_metric: str
    stop_cond: str | None
    patience: int | None
    seed: int
    demo: bool
    settings: Mapping[str, Any]

    def job_and_sites(self) -> tuple[JobConfig, dict[str, str | None]]:
        """Return the job, and the ``site.yaml`` of its sites as far as it carries them.

        Raises:
            ConfigError: something is not known or not valid.
        """
        model, changes = self._model(), self._changes()
        own = site_files(self.sites) if self.sites is not None else None
        if not isinstance(self.task, str):
            if model is None:
                raise ConfigError(
                    "model: a task of one's own needs the name of a network.", code="config.conflict", key="model"
                )
            return own_job(self.name, self.task, self.method, model, seed=self.seed, changes=changes), own or {}
        arguments: dict[str, Any] = {
            "model": model,
            "changes": changes,
            "name": self.name,
            "seed": self.seed,
            "demo": self.demo,
        }
        if isinstance(self.sites, Path) or own is None:
            job, files = any_job(self.task, self.method, sites=self.sites_folder, **arguments)
            return job, dict(files)
        return job_for(self.task, self.method, **arguments), own

    @property
    def script(self) -> Path | None:
        """The file that has the network's class, where it is a file of the user's own and no installed package."""
        if not inspect.isclass(self.model):
            return None
        module = _module(self.model)
        return None if "." in module or module in packages_distributions() else Path(inspect.getfile(self.model))

    @property
    def sites_folder(self) -> Path:
        """The folder with one folder per site."""
        return self.sites if isinstance(self.sites, Path) else Path("sites")

    def _changes(self) -> dict[str, Any]:
        stop = {"condition": self.stop_cond, "patience": self.patience, "metric": self.key_metric}
        asked = self.stop_cond is not None or self.patience is not None
        loss = {"name": self.loss} if isinstance(self.loss, str) else dict(self.loss or {})
        return {
            "federation.rounds": self.num_rounds,
            "federation.min_sites": self.min_clients,
            **({"federation.stop": stop} if asked else {}),
            **{f"loss.{key}": value for key, value in loss.items()},
            **{f"train.{key}": value for key, value in self.train.items()},
            **{f"{self.method}.{key}": value for key, value in self.method_options.items()},
            **({"model.options": dict(self.model.get("args") or {})} if isinstance(self.model, Mapping) else {}),
            **self.settings,
        }

    def _model(self) -> str | None:
        """Return the name of the network: a registered one, or the dotted path of its class."""
        model = self.model
        if model is None or isinstance(model, str):
            return model
        if isinstance(model, Mapping) and model.keys() <= {"class_path", "args"} and "class_path" in model:
            return str(model["class_path"])
        if inspect.isclass(model):
            return f"{_module(model)}.{model.__qualname__}"
        raise ConfigError(
            "model: give the name of a network, its class, or {'class_path': 'package.module.Class', 'args': {...}}: "
            "every site builds it anew, and starts from the server's weights (initial_ckpt).",
            code="config.value",
            key="model",
        )


def _module(kind: type) -> str:
    """Return the module to import a class from; a script that is running is imported by its file's name."""
    return Path(inspect.getfile(kind)).stem if kind.__module__ == "__main__" else kind.__module__


def site_files(sites: Sites) -> dict[str, str | None]:
    """Return the ``site.yaml`` of each site; None where only names were given.

    Raises:
        ConfigError: settings are not valid, or there are none in the folder.
    """
    if isinstance(sites, Path):
        files = {path.parent.name: dump_yaml(load_site(path)) for path in sorted(sites.glob(f"*/{SITE_FILE}"))}
        if not files:
            raise ConfigError(f"{sites} has no folder with a {SITE_FILE} in it.", code="site.none", key="sites")
        return dict(files)
    if isinstance(sites, Mapping):
        return {name: dump_yaml(_site(name, content)) for name, content in sites.items()}
    return dict.fromkeys(sites)


def _site(name: str, content: SiteConfig | Mapping[str, Any]) -> SiteConfig:
    return content if isinstance(content, SiteConfig) else validated(SiteConfig, dict(content), f"the site {name}")
