"""The same jobs carried by Flower: messages as Flower's records, a transport over its grid, its two apps.

Needs the extra ``flower``. Flower and Ray report their use to their makers unless they are told not to; here they are.
"""

import os

# Read when the packages are imported, so set before.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from fedmr_med.flower.apps import client_app, server_app
from fedmr_med.flower.simulation import simulate
from fedmr_med.flower.transport import FlowerTransport

__all__ = ["FlowerTransport", "client_app", "server_app", "simulate"]
