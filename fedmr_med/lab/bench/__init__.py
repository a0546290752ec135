"""Comparing methods over seeds: many runs of the in-process federation, spread over the cores."""
