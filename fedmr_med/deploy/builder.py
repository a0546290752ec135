"""The provisioning builders: one locks and signs every kit, one lets the certificates of relays say what they are."""

from pathlib import Path
from typing import Any

from nvflare.lighter.constants import CtxKey, ParticipantType
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Participant, Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.spec import Builder

from fedmr_med.deploy import kit
from fedmr_med.deploy.manifest import write_manifest
from fedmr_med.files import write_json, write_text
from fedmr_med.sites import SITE_FILE


class LockedKitBuilder(Builder):
    """To be listed right after FLARE's ``WorkspaceBuilder``.

    FLARE finishes its builders from the last to the first, so all others are done when this one locks and signs.

    Args:
        sites: folder with one folder per hospital that holds the ``site.yaml`` suggested to it.
    """

    def __init__(self, sites: str = "sites"):
        self.sites = Path(sites)

    def finalize(self, project: Project, ctx: ProvisionContext) -> None:
        """Lock and sign the kit of the server and of every hospital, and sign those of relays, which run no job."""
        key = ctx[CtxKey.ROOT_PRI_KEY]
        for relay in project.get_relays():
            write_manifest(Path(ctx.get_ws_dir(relay)), key)
        for participant in (project.get_server(), *project.get_clients()):
            folder = Path(ctx.get_ws_dir(participant))
            server = participant.type == "server"
            lock(folder, server=server)
            if not server:
                # Only a suggestion: the hospital's own file is the hospital's to write, and no later kit replaces it.
                suggested = self.sites / str(participant.name) / SITE_FILE
                write_text(folder / "local" / kit.SITE_EXAMPLE, suggested.read_text(encoding="utf-8"))
            write_manifest(folder, key)


class KitCertBuilder(CertBuilder):
    """FLARE's builder, which gives a relay the certificate of a site; here it has the role ``relay``.

    In a secure sum a relay would pass for a hospital otherwise (:mod:`fedmr_med.secure.identity`).
    """

    _relays: frozenset[str] = frozenset()
    _role: str | None = None

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write keys and certificates into all kits."""
        self._relays = frozenset(str(relay.name) for relay in project.get_relays())
        super().build(project, ctx)

    def get_pri_key_cert(self, participant: Participant) -> Any:
        """Return a new private key, and its certificate; of a relay for both its ends."""
        self._role = ParticipantType.RELAY if participant.name in self._relays else None
        return super().get_pri_key_cert(participant)

    def _generate_cert(self, *arguments: Any, role: str | None = None, **options: Any) -> Any:
        return CertBuilder._generate_cert(*arguments, role=role or self._role, **options)


def lock(folder: Path, *, server: bool) -> None:
    """Write the locked settings into the ``local/`` folder of a kit.

    The files that FLARE falls back to when one of ours is removed are replaced as well, since its own allow more.

    Raises:
        ConfigError: FLARE's defaults are missing.
    """
    local = folder / "local"
    default = kit.read_json(local / "resources.json.default")
    resources = kit.server_resources(default) if server else kit.site_resources(default)
    for name, content in ((kit.RESOURCES, resources), (kit.AUTHORIZATION, kit.authorization())):
        write_json(local / name, content)
        write_json(local / f"{name}.default", content)
    write_json(local / kit.PRIVACY, kit.server_privacy() if server else kit.site_privacy())
    (local / f"{kit.PRIVACY}.sample").unlink(missing_ok=True)
