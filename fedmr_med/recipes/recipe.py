"""The recipes: a job of this toolkit for any of FLARE's execution environments."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.job_config.script_runner import FrameworkType
from nvflare.recipe.poc_env import PocEnv
from nvflare.recipe.prod_env import ProdEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text
from fedmr_med.recipes.job import FedMRJob
from fedmr_med.recipes.settings import Sites, job_and_sites, script_of, site_files
from fedmr_med.sites import SITE_FILE, SITES_VARIABLE


class MethodRecipe(Recipe):
    """Any method of this toolkit as a FLARE recipe: ``execute(SimEnv(...))``, ``PocEnv``, ``ProdEnv``, ``export``.

    Args:
        name: name of the job.
        method: name of a method or preset: ``fedmr``, ``moon``, ``fedadam``, ...
        task: name of a dataset, whose settings the job starts from; or the task section of a job on data of one's own:
            ``{"class_names": [...], "image_size": 64, "transform": "plain"}``.
        model: name of a network, its class, or FLARE's ``{"class_path": ..., "args": {...}}``; None the dataset's.
            A class in a script of your own travels with the job, which sites that let no job bring code refuse.
        min_clients: replies that make a round count.
        num_rounds: rounds of the chain.
        initial_ckpt: a file with the weights to start from: a model file of this toolkit, or a state dict. The job
            carries it.
        train_script, train_args: a training script of your own (:mod:`fedmr_med.client`), and its arguments; it travels
            with the job. ``model`` must have the same weights by name as the script's, and the sites have
            ``data: {source: script}``.
        method_options, loss, train: those sections of the job: ``{"mu1": 0.5}``, ``"focal"``, ``{"epochs": 1}``.
        sites: a folder with one folder per site, or ``{site: {"data": ..., "policy": ...}}`` as in ``site.yaml``, or
            names alone where the sites have settings of their own. A simulated site takes what is given here, and so
            does one of ``PocEnv``; a hospital never does.
        per_site_config: the same by FLARE's name, which ``set_per_site_config(recipe, ...)`` gives as well.
        key_metric: what ``patience`` looks at: ``balanced_accuracy`` or ``accuracy``. The best model is the one with
            the best balanced accuracy.
        stop_cond: ends the run early: ``"balanced_accuracy >= 0.8"``.
        patience: ends the run after so many rounds without a better model.
        best_model_filename: a copy of the best model, in the server's app folder of the job.
        seed: seed of the model and all that follows.
        demo: start from the settings for the dataset's demo.
        settings: any other setting, with dotted keys as for ``--set``: ``{"federation.wire": "float16"}``.

    Raises:
        ConfigError: something is not known or not valid.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        method: str,
        task: str | Mapping[str, Any] = "isic2019",
        model: Any = None,
        min_clients: int,
        num_rounds: int = 2,
        initial_ckpt: str | Path | None = None,
        train_script: str | Path | None = None,
        train_args: str = "",
        method_options: Mapping[str, Any] | None = None,
        loss: str | Mapping[str, Any] | None = None,
        train: Mapping[str, Any] | None = None,
        sites: Sites | str | None = None,
        per_site_config: Mapping[str, Mapping[str, Any]] | None = None,
        key_metric: str = "balanced_accuracy",
        stop_cond: str | None = None,
        patience: int | None = None,
        best_model_filename: str | None = None,
        seed: int = 0,
        demo: bool = False,
        settings: Mapping[str, Any] | None = None,
    ):
        if sites is not None and per_site_config is not None:
            raise ConfigError(
                "sites and per_site_config are two names for one thing: give one of them.",
                code="config.conflict",
                key="sites",
            )
        given = Path(sites) if isinstance(sites, str) else sites or per_site_config
        stop = {"condition": stop_cond, "patience": patience, "metric": key_metric}
        changes = {
            "federation.rounds": num_rounds,
            "federation.min_sites": min_clients,
            **({"federation.stop": stop} if stop_cond is not None or patience is not None else {}),
            **({"loss.name": loss} if isinstance(loss, str) else _prefixed("loss", loss)),
            **_prefixed("train", train),
            **_prefixed(method, method_options),
            **(settings or {}),
        }
        job, files = job_and_sites(
            task, method, given, name=name or method, model=model, seed=seed, demo=demo, changes=changes
        )
        self.framework = FrameworkType.PYTORCH
        self._own = FedMRJob(
            job,
            files,
            initial_model=_carried("initial_ckpt", initial_ckpt),
            best_model_filename=best_model_filename,
            script=_carried("train_script", train_script),
            script_args=train_args,
        )
        super().__init__(self._own)
        if (own_file := script_of(model)) is not None:
            self.add_client_file(str(own_file))

    @property
    def settings(self) -> JobConfig:
        """The job's settings, as its ``fedmr.yaml`` has them."""
        return self._own.settings

    def finalize(self) -> None:
        """Prepare for use: no environment is known yet."""
        super().finalize()
        self._own.installed_only = False

    def process_env(self, env: ExecEnv) -> None:
        """Adapt to where the job runs: hospitals let no job bring code; sites on this machine get our settings."""
        self._own.installed_only = isinstance(env, ProdEnv)
        if isinstance(env, PocEnv):
            self._settle(Path(f"{env.poc_workspace}.sites"))

    def _apply_per_site_config(self, config: dict[str, dict[str, Any]]) -> None:
        self._own.sites = site_files(config)

    def _settle(self, folder: Path) -> None:
        """Give the processes that FLARE starts on this machine their settings, unless the user has done so."""
        carried = {name: text for name, text in self._own.sites.items() if text is not None}
        if not carried or os.environ.get(SITES_VARIABLE, str(folder)) != str(folder):
            return
        for name, text in carried.items():
            write_text(folder / name / SITE_FILE, text)
        os.environ[SITES_VARIABLE] = str(folder)


def _prefixed(section: str, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    return {f"{section}.{key}": value for key, value in (settings or {}).items()}


def _carried(argument: str, file: str | Path | None) -> Path | None:
    """Return a file that the job carries.

    Raises:
        ConfigError: it is not here.
    """
    if file is not None and not Path(file).is_file():
        raise ConfigError(
            f"{argument}: {file} is not a file; the job carries it, so it must be here.",
            code="file.missing",
            key=argument,
        )
    return None if file is None else Path(file)


class FedMRRecipe(MethodRecipe):
    """FedMR as a FLARE recipe; takes all of :class:`MethodRecipe` but the method."""

    def __init__(self, *, name: str = "fedmr", min_clients: int, **arguments: Any):
        super().__init__(name=name, method="fedmr", min_clients=min_clients, **arguments)
