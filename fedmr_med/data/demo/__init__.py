"""The built-in demo: generated pictures, so that a federation runs on a machine without any data.

Which classes a centre holds in number, rarely or not at all follows Fed-ISIC2019. When the demo stands in for images is
said in :mod:`fedmr_med.sites`, and which settings a job then has in :func:`effective_job`.
"""

from fedmr_med.data.demo.source import DEMO, RARE, class_counts_of, effective_job, load_demo, on_demo

__all__ = ["DEMO", "RARE", "class_counts_of", "effective_job", "load_demo", "on_demo"]
