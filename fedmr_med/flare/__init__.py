"""Thin adapters between the toolkit and NVIDIA FLARE: the only code that imports ``nvflare``."""
