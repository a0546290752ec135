"""The server's stores in its workspace: FLARE asks for absolute paths, which no kit can know before it is unpacked."""

from pathlib import Path

from nvflare.apis.impl.job_def_manager import SimpleJobDefManager
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage


class WorkspaceJobManager(SimpleJobDefManager):
    """FLARE's job manager; a relative folder counts from the workspace, in which the server's processes run."""

    def __init__(self, uri_root: str = "jobs-storage", job_store_id: str = "job_store"):
        super().__init__(uri_root=str(Path(uri_root).absolute()), job_store_id=job_store_id)


class WorkspaceStorage(FilesystemStorage):
    """FLARE's file store; a relative folder counts from the workspace."""

    def __init__(self, root_dir: str = "snapshot-storage", uri_root: str = "/"):
        super().__init__(root_dir=str(Path(root_dir).absolute()), uri_root=uri_root)
