"""The recipes: a job of this toolkit for any of FLARE's execution environments."""

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from nvflare.job_config.script_runner import FrameworkType
from nvflare.recipe.poc_env import PocEnv
from nvflare.recipe.prod_env import ProdEnv
from nvflare.recipe.sim_env import SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe
from torch import nn

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text
from fedmr_med.models import wrap
from fedmr_med.recipes.job import FedMRJob
from fedmr_med.recipes.settings import Sites, job_and_sites, network_of, script_of, site_files, together
from fedmr_med.sites import SITE_FILE, SITES_VARIABLE

_SCRIPT_SITE = {"data": {"source": "script"}, "policy": {"training": None}}


class MethodRecipe(Recipe):
    """Any method of this toolkit as a FLARE recipe: ``execute(SimEnv(...))``, ``PocEnv``, ``ProdEnv``, ``export``.

    Args:
        name: name of the job.
        method: name of a method or preset: ``fedmr``, ``moon``, ``fedadam``, ...
        task: name of a dataset, whose settings the job starts from, ``isic2019`` by default; or the task section of a
            job on data of one's own: ``{"class_names": [...], "image_size": 64, "transform": "plain"}``.
        model: name of a network, its class, FLARE's ``{"class_path": ..., "args": {...}}``, or an instance of a class
            that needs no arguments, whose weights the job starts from; None the dataset's. A class in a script of your
            own travels with the job, which sites that let no job bring code refuse.
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
            does one of ``PocEnv``; a hospital never does. With a training script and without settings here, a simulated
            site shares nothing but its model.
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
        ConfigError: something is not known or not valid; arguments that cannot be used are named together.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        method: str = "fedmr",
        task: str | Mapping[str, Any] | None = None,
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
        given = Path(sites) if isinstance(sites, str) else sites or per_site_config
        with together() as checked:
            checked(_check_one_name_of_sites, sites, per_site_config)
            checked(_check_task_of_script, task, train_script)
            checked(network_of, model)
            checked(site_files, given or {})
            script = checked(_carried, "train_script", train_script)
            initial = checked(_carried, "initial_ckpt", initial_ckpt)
        self._weights = TemporaryDirectory()  # for as long as the recipe lives
        if initial is None and isinstance(model, nn.Module):
            initial = Path(self._weights.name) / "initial.pt"
            torch.save(wrap(deepcopy(model)).state_dict(), initial)  # wrapping moves its last layer
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
            "isic2019" if task is None else task,
            method,
            given,
            name=name or method,
            model=model,
            seed=seed,
            demo=demo,
            changes=changes,
        )
        self.framework = FrameworkType.PYTORCH
        self._own = FedMRJob(
            job,
            files,
            initial_model=initial,
            best_model_filename=best_model_filename,
            script=script,
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
        if isinstance(env, (SimEnv, PocEnv)) and self._own.script is not None and not self._own.sites:
            names = env.clients or [f"site-{number}" for number in range(1, (env.num_clients or 0) + 1)]
            self._own.sites = site_files(dict.fromkeys(names, _SCRIPT_SITE))
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


def _check_one_name_of_sites(sites: object, per_site_config: object) -> None:
    if sites is not None and per_site_config is not None:
        raise ConfigError(
            "sites and per_site_config are two names for one thing: give one of them.",
            code="config.conflict",
            key="sites",
        )


def _check_task_of_script(task: object, script: object) -> None:
    if script is not None and task is None:
        raise ConfigError(
            "task: name the classes of your training script: task={'class_names': ['a', 'b', ...]}.",
            code="config.missing",
            key="task",
        )


def _prefixed(section: str, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    return {f"{section}.{key}": value for key, value in (settings or {}).items()}


def _carried(argument: str, file: str | Path | None) -> Path | None:
    """Return a file that the job carries; raise ConfigError if it is not here."""
    if file is not None and not Path(file).is_file():
        raise ConfigError(
            f"{argument}: {file} is not a file; the job carries it, so it must be here.",
            code="file.missing",
            key=argument,
        )
    return None if file is None else Path(file)


class FedMRRecipe(MethodRecipe):
    """FedMR as a FLARE recipe."""
