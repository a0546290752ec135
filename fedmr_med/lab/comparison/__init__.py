"""One engine for comparisons: many runs, each in a folder of its own, resumed where they stopped.

``bench`` and ``flamby`` say what a run is (:class:`fedmr_med.lab.comparison.runs.Run`); here it is scheduled,
locked, resumed and shown.
"""
