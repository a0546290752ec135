"""How a federation stands: server, hospitals, running chains, certificates."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmr_med.deploy.manifest import certificate, identity
from fedmr_med.deploy.renewal import SOON, expiries
from fedmr_med.deploy.session import Session
from fedmr_med.deploy.watch import progress_line


def status(session: Session, workspace: Path | None = None) -> dict[str, Any]:
    """Return how the federation stands, as plain values; with the workspace of provisioning, everybody's certificates.

    Raises:
        DeployError: the server does not answer.
    """
    running = [info for info in session.jobs() if not info.ended]
    known = {session.user: certificate(identity(session.kit, ".crt")).not_valid_after_utc}
    known |= expiries(workspace) if workspace else {}
    return {
        "server": session.address,
        "since": session.since().isoformat(timespec="seconds"),
        "hospitals": session.hospitals(),
        "running": [
            {
                "chain": info.chain,
                "name": info.name,
                "owner": info.owner,
                "status": info.status,
                "progress": session.progress(info.job) if info.status == "RUNNING" else None,
            }
            for info in running
        ],
        "certificates": {name: until.date().isoformat() for name, until in sorted(known.items())},
    }


def in_lines(state: dict[str, Any]) -> list[str]:
    """Say a status in lines."""
    lines = [
        f"server        {state['server']}, up since {state['since']}",
        f"hospitals     {len(state['hospitals'])} connected: {', '.join(state['hospitals']) or 'none'}",
    ]
    for job in state["running"]:
        where = progress_line(job["progress"]) if job["progress"] else job["status"].lower()
        lines.append(f"chain         {job['chain']} ({job['name']}, {job['owner']}): {where}")
    if not state["running"]:
        lines.append("chain         none is running")
    soon = (datetime.now(UTC) + SOON).date().isoformat()
    for name, until in state["certificates"].items():
        warning = "  RENEW IT: fedmr-med deploy renew" if until < soon else ""
        lines.append(f"certificate   {name} until {until}{warning}")
    return lines
