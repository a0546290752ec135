"""Writing FLARE job folders: the same few FLARE files for every job, and its ``fedmr.yaml``."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmr_med.config import JOB_FILE, JobConfig
from fedmr_med.errors import ConfigError
from fedmr_med.files import write_text
from fedmr_med.schema import dump_yaml
from fedmr_med.sites import SITE_FILE

CUSTOM_README = """This folder carries no code. A job that has a custom folder may name classes outside FLARE's own
list in `nvflare simulator`. A provisioned federation lists the classes at each site instead, and the job is
sent without this folder.
"""


def write_job(job: JobConfig, folder: Path, sites: Mapping[str, str]) -> None:
    """Write a FLARE job folder.

    Args:
        job: its settings.
        folder: where to write it; a job that is there is replaced.
        sites: content of ``site.yaml`` of each site, by name; carried for the simulator, where a site has no
            folder of its own.

    Raises:
        ConfigError: the folder exists and is not a job.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "meta.json").exists():
        raise ConfigError(f"{folder} exists and is not a job folder; choose another one.")
    shutil.rmtree(folder, ignore_errors=True)
    config = folder / "app" / "config"
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": job.federation.min_sites,
        "deploy_map": {"app": ["server", *sites]},
    }
    _write_json(folder / "meta.json", meta)
    _write_json(config / "config_fed_server.json", _SERVER)
    _write_json(config / "config_fed_client.json", _CLIENT)
    write_text(config / JOB_FILE, dump_yaml(job))
    for site, content in sites.items():
        write_text(config / "sites" / site / SITE_FILE, content)
    write_text(folder / "app" / "custom" / "README", CUSTOM_README)


_SERVER = {
    "format_version": 2,
    "workflows": [{"id": "controller", "path": "fedmr_med.flare.controller.FedMRController", "args": {}}],
    "components": [],
}
_CLIENT = {
    "format_version": 2,
    "executors": [
        {
            "tasks": ["train", "validate", "head", "submit_model"],
            "executor": {"path": "fedmr_med.flare.executor.FedMRExecutor", "args": {}},
        }
    ],
    "components": [],
}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")
