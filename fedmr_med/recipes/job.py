"""FLARE's job object for a job of this toolkit: it writes the folder that ``fedmr-med jobs write`` writes."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.app_common.workflows.cross_site_model_eval import CrossSiteModelEval
from nvflare.job_config.api import FedJob
from nvflare.job_config.fed_job_config import FedJobConfig

from fedmr_med.config import JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_json
from fedmr_med.flare.controller import FedMRController
from fedmr_med.flare.executor import FedMRExecutor
from fedmr_med.flare.locator import GlobalModelLocator
from fedmr_med.flare.script import ScriptExecutor, check_settings_for_script
from fedmr_med.jobs.folder import write_job
from fedmr_med.wire.kinds import TASKS

LOCATOR = "global_model_locator"


class FedMRJob(FedJob):
    """A job of this toolkit that FLARE's helpers can add components, filters and files to.

    Attributes:
        settings: the job.
        sites: content of ``site.yaml`` by site; None where only the name is known.
        initial_model: a file with the weights to start from.
        script: a training script of the user's own, or None.
        installed_only: leave out ``custom/``, as sites do that let no job bring code.
        comp_ids: FLARE's helpers look the model locator up here.

    Raises:
        ConfigError: the settings ask for what sites with a training script do not keep.
    """

    def __init__(
        self,
        settings: JobConfig,
        sites: Mapping[str, str | None],
        *,
        initial_model: Path | None = None,
        best_model_filename: str | None = None,
        script: Path | None = None,
        script_args: str = "",
    ):
        super().__init__(name=settings.name, min_clients=settings.federation.min_sites)
        self.settings = settings
        self.sites = dict(sites)
        self.initial_model = initial_model
        self.installed_only = False
        self.script = script
        self.comp_ids = {"locator_id": LOCATOR}
        self.job = _Folder(self)
        self.set_app_packages(["fedmr_med"])
        self.to_server(FedMRController(best_model_filename=best_model_filename or ""))
        if script is None:
            self.to_clients(FedMRExecutor(), tasks=list(TASKS))
        else:
            check_settings_for_script(settings)
            self.to_clients(ScriptExecutor(script.name, script_args), tasks=list(TASKS))
            self.add_file_to_clients(str(script))

    def to(self, obj: Any, target: str, id: str | None = None, **kwargs: Any) -> Any:
        """Add a part; a cross-site evaluation gets the locator that finds our models."""
        if isinstance(obj, CrossSiteModelEval):
            super().to(GlobalModelLocator(), target, id=LOCATOR)
        return super().to(obj, target, id=id, **kwargs)

    def simulator_run(
        self, workspace: str, n_clients: int | None = None, clients: list[str] | None = None, **options: Any
    ) -> Any:
        """Run in FLARE's simulator; the sites are the job's own.

        Raises:
            ConfigError: the simulator is asked for other sites than the job has settings for.
        """
        if self.sites:
            missing = [name for name in clients or () if self.sites.get(name) is None]
            if missing:
                raise ConfigError(
                    f"The recipe has no settings for the site {missing[0]!r}; give them with `sites`.",
                    code="site.unknown",
                    key="sites",
                )
            if clients is None and n_clients != len(self.sites):
                raise ConfigError(
                    f"The recipe has {len(self.sites)} sites ({', '.join(self.sites)}), not {n_clients}: name those "
                    "to simulate with SimEnv(clients=[...]).",
                    code="site.count",
                    key="sites",
                )
            n_clients, clients = None, clients or list(self.sites)
        return super().simulator_run(workspace, n_clients=n_clients, clients=clients, **options)


class _Folder(FedJobConfig):
    """Writes the job folder by our own writer, with what FLARE's helpers added to the job."""

    def __init__(self, job: FedMRJob):
        super().__init__(job_name=job.name, min_clients=job.settings.federation.min_sites)
        self._job = job

    def generate_job_config(self, job_root: str) -> None:
        """Write the job below ``job_root``."""
        job, folder = self._job, Path(job_root) / self.job_name
        with TemporaryDirectory() as temporary:
            super().generate_job_config(temporary)
            theirs = Path(temporary) / self.job_name / "app"
            server, client = (_parts(theirs / "config" / f"config_fed_{side}.json") for side in ("server", "client"))
            write_job(job.settings, folder, job.sites, server=server, client=client, initial_model=job.initial_model)
            for custom in folder.glob("*/custom"):
                if (theirs / "custom").is_dir():
                    shutil.copytree(theirs / "custom", custom, dirs_exist_ok=True)
        if self.meta_props:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            write_json(folder / "meta.json", meta | self.meta_props)
        if job.installed_only:
            for custom in folder.glob("*/custom"):
                shutil.rmtree(custom)


def _parts(path: Path) -> dict[str, Any]:
    """Read one of FLARE's configuration files, without its empty lists of filters."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {key: value for key, value in content.items() if value or not key.endswith("_filters")}
