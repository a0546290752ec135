"""A whole federation without FLARE, for studies with many clients: the same sites, server and messages.

``federation`` runs the rounds, ``local_sites`` answers for the sites with one network that goes from site to site,
``pool`` spreads the work over processes, ``broadcast`` gives a message to all of them at once, ``showcase`` is the demo
of ``fedmr-med demo``.
"""

from fedmr_med.runner.federation import SERVER, Costs, Federation, open_sites

__all__ = ["SERVER", "Costs", "Federation", "open_sites"]
