"""Provisioning, preflight, and the coordinator's commands for a real federation."""
