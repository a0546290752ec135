"""Federated learning on partially class-disjoint medical images: FedMR on NVIDIA FLARE."""

__version__ = "0.1.0"
