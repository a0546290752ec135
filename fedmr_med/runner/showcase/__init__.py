"""The demo of ``fedmr-med demo``: what hospitals gain from a federation, shown on generated pictures in 90 seconds.

``plan`` says what is run, ``work`` runs it in two processes, ``picture`` and ``page`` show it afterwards.
"""

from fedmr_med.runner.showcase.show import Showcase, demo

__all__ = ["Showcase", "demo"]
