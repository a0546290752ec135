"""Attacks on what a site releases, before and after each defence: ``fedmr-med privacy audit``."""
