"""What an adapter learns from FLARE's context: the job's settings, the site's settings, the folders."""

import hashlib
import json
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants

from fedmr_med.config import JOB_FILE, JobConfig, load_job
from fedmr_med.data.demo import effective_job, on_demo
from fedmr_med.errors import ConfigError
from fedmr_med.files import state_folder
from fedmr_med.jobs.folder import ALL_SITES
from fedmr_med.registry import is_dotted
from fedmr_med.secure.identity import UNSIGNED, Certified
from fedmr_med.server.owner import Owner
from fedmr_med.site.approval import APPROVALS_FILE, ApprovalBook
from fedmr_med.site.client_state import CLIENT_STATE
from fedmr_med.site.view import Place, SiteView, SiteViews
from fedmr_med.sites import SiteConfig, find_site

SITES_FOLDER = "sites"
DEMO_BANNER = "DEMO: no images were given, so generated pictures stand in for them. No figure here is a medical result."
_VIEW = "fedmr_view"


def site_in_simulator(fl_ctx: FLContext) -> bool:
    """Whether this site is simulated. Set by the site's own process: no job and no server can claim it."""
    return bool(fl_ctx.get_prop(FLContextKey.SIMULATE_MODE, False))


def server_in_simulator(fl_ctx: FLContext) -> bool:
    """Whether this server is simulated: FLARE marks only the sites, but gives the simulated job a fixed id."""
    return bool(fl_ctx.get_job_id() == SimulatorConstants.JOB_NAME)


def _witness(fl_ctx: FLContext) -> Path:
    """Return the file outside the kit that remembers how much of the privacy budget was spent.

    It goes by the site's name and the federation's root certificate, so that a renewed kit does not start anew.
    """
    root = root_folder(fl_ctx) / "startup" / "rootCA.pem"
    federation = hashlib.sha256(root.read_bytes() if root.exists() else b"").hexdigest()[:16]
    return state_folder() / f"{fl_ctx.get_identity_name()}-{federation}.json"


def config_folder(fl_ctx: FLContext) -> Path:
    """Return the job's ``app/config`` folder as deployed here."""
    workspace = fl_ctx.get_engine().get_workspace()
    return Path(workspace.get_app_config_dir(fl_ctx.get_job_id()))


def run_folder(fl_ctx: FLContext) -> Path:
    """Return the folder of this run, whose files FLARE hands to whoever downloads the job's results."""
    return Path(fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id()))


def root_folder(fl_ctx: FLContext) -> Path:
    """Return the FLARE workspace of this server or site: it outlives the job."""
    return Path(fl_ctx.get_engine().get_workspace().get_root_dir())


def chain_id(job: JobConfig, fl_ctx: FLContext) -> str:
    """Return the id that a run and its resumptions have in common."""
    return job.chain or str(fl_ctx.get_job_id())


def chain_folder(fl_ctx: FLContext, job: JobConfig) -> Path:
    """Return the folder of the job's chain on this server, outside what FLARE cleans up."""
    return root_folder(fl_ctx) / "chains" / chain_id(job, fl_ctx)


def submitter(fl_ctx: FLContext) -> Owner | None:
    """Return who submitted the job, by what FLARE's server wrote down when it took it; None in the simulator."""
    meta = _job_meta(fl_ctx)
    name = meta.get("submitter_name")
    return Owner(name=str(name), org=str(meta.get("submitter_org"))) if name else None


def _job_meta(fl_ctx: FLContext) -> dict[str, Any]:
    """Return what FLARE wrote down about the job here."""
    path = Path(fl_ctx.get_engine().get_workspace().get_job_meta_path(fl_ctx.get_job_id()))
    meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return meta


def introduced(fl_ctx: FLContext) -> bool:
    """Whether another process of this simulated site has introduced it in this run; from now on one has."""
    try:
        (root_folder(fl_ctx) / ".introduced").touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


def site_views(fl_ctx: FLContext) -> SiteViews:
    """Return what looks at this site: at its own settings, the job, and the decisions of its people.

    A simulated site has nobody to ask, no certificate to sign with and no budget that outlives the run.
    """
    name, job_file, simulated = fl_ctx.get_identity_name(), config_folder(fl_ctx) / JOB_FILE, site_in_simulator(fl_ctx)
    root = root_folder(fl_ctx)
    local = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
    carried = config_folder(fl_ctx) / SITES_FOLDER if simulated else None

    def settings() -> tuple[SiteConfig, str]:
        site, path = find_site(name, local=local, job_sites=carried)
        return site, str(path)

    def job(site: SiteConfig) -> JobConfig:
        # A simulated federation in which only some sites have images is refused by the server, which knows all.
        return _checked(effective_job(load_job(job_file), {name: site}), fl_ctx, simulated=simulated)

    place = Place(
        name,
        root / CLIENT_STATE,
        people=None if simulated else ApprovalBook(root / APPROVALS_FILE),
        job_id=str(fl_ctx.get_job_id()),
        identity=lambda: UNSIGNED if simulated else Certified(root / "startup"),
        witness=None if simulated else _witness(fl_ctx),
    )
    return SiteViews(place, settings, job)


def outgoing_view(fl_ctx: FLContext) -> SiteView:
    """Return what holds at this site now that a reply with content is about to leave: one look for all layers.

    Raises:
        FedMRError: the site refuses the job, or its settings cannot be read. Nothing may leave then.
    """
    view = fl_ctx.get_prop(_VIEW)
    if not isinstance(view, SiteView):
        view = site_views(fl_ctx).before_sending()
        keep_view(fl_ctx, view)
    return view


def keep_view(fl_ctx: FLContext, view: SiteView | None) -> None:
    """Keep the view under which a task's reply was released, for the layers behind; None forgets it."""
    fl_ctx.set_prop(_VIEW, view, private=True, sticky=False)


def server_job(fl_ctx: FLContext) -> tuple[JobConfig, bool]:
    """Return the job as the server runs it, and whether it is simulated with all sites on generated pictures.

    Raises:
        ConfigError: the job is not valid, or in a simulated federation only some sites have images.
    """
    config = config_folder(fl_ctx)
    carried = [name for name, named in _carried(fl_ctx).items() if named]
    sites = {name: find_site(name, local=None, job_sites=config / SITES_FOLDER)[0] for name in carried}
    job = effective_job(load_job(config / JOB_FILE), sites)
    return _checked(job, fl_ctx, simulated=server_in_simulator(fl_ctx)), on_demo(sites)


def _checked(job: JobConfig, fl_ctx: FLContext, *, simulated: bool) -> JobConfig:
    """Return the job; raise ConfigError if its network is a dotted path that the class list does not have."""
    name = job.model.name
    if simulated or not is_dotted(name):
        return job
    path = Path(fl_ctx.get_engine().get_workspace().get_resources_file_path())
    listed = json.loads(path.read_text(encoding="utf-8")).get("class_allow_list") or []
    if name not in listed:
        raise ConfigError(
            f"model.name: {name} is not on the class list of {path}. Name a network that is registered, by an entry "
            "point of a package installed here.",
            code="config.not-on-class-list",
            key="model.name",
        )
    return job


def left_over_sites(fl_ctx: FLContext) -> tuple[str, ...]:
    """Return the sites whose settings a simulated job carries although its ``meta.json`` does not name them."""
    return tuple(name for name, named in _carried(fl_ctx).items() if not named)


def _carried(fl_ctx: FLContext) -> dict[str, bool]:
    """Return the sites whose settings a simulated job carries, and of each whether it runs there."""
    folder = config_folder(fl_ctx) / SITES_FOLDER
    names = sorted(path.name for path in folder.iterdir()) if server_in_simulator(fl_ctx) and folder.is_dir() else []
    named = {site for sites in _job_meta(fl_ctx).get("deploy_map", {}).values() for site in sites}
    everywhere = named <= {"server"} or ALL_SITES in named
    return {name: everywhere or name in named for name in names}


def note(fl_ctx: FLContext, **about: str | None) -> None:
    """Remember something about a task for the site's own journal, ``weights`` or ``reason``; None forgets it."""
    for name, value in about.items():
        fl_ctx.set_prop(f"fedmr_{name}", value, private=True, sticky=False)


def noted(fl_ctx: FLContext) -> dict[str, str]:
    """Return the SHA-256 of the weights that the task is answered with, and why it gets no reply, where noted."""
    about = {name: fl_ctx.get_prop(f"fedmr_{name}") for name in ("weights", "reason")}
    return {name: str(value) for name, value in about.items() if value}
