"""What several tests share: small jobs and sites, archives and pictures to read, simulator runs, federations."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
